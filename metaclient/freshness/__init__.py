"""How fresh the answers of region replicas are: their lag, the canary that measures it, and what sessions have seen."""
