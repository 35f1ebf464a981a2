"""Load balancers of Rancher: what is desired, what is observed, and the steps between."""
