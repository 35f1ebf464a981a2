"""Load balancers of Octavia: the desired ones, the plan of steps, and how steps are taken."""
