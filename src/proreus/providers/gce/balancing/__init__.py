"""Load balancers of Services: what they consist of, what is desired, and how it gets there."""
