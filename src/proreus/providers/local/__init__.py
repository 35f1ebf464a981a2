"""Bare metal, VMs and laptops: machines from an inventory, routes and balancers in the kernel."""
