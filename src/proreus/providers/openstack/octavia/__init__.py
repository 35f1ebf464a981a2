"""Load balancers of Octavia: what they should be, what is done next, and how."""
