"""Classic load balancers: what there is (`parts`), what is to be done (`plan`), doing it."""
