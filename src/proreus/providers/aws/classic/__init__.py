"""Classic load balancers: their parts, the plan of steps, and how steps are taken."""
