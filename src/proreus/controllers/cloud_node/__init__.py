"""The controller that initialises nodes and keeps their addresses and labels right."""
