"""The master: servers, tables, region states, assignment, procedures, the balancer."""
