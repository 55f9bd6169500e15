"""How old an answer of a region replica may be: what is known of their lag, and the canary that measures it."""
