"""Load balancers of internal Services that send traffic to a subset of the nodes."""
