"""The controller that removes nodes whose machine is gone, taints those that are shut down."""
