"""Load balancers of Services: their parts, the desired state, and the steps towards it."""
