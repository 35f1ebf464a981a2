"""Delete nodes whose machine is gone, and taint those whose machine is shut down."""
