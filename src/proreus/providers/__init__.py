"""Bundled clouds, found through the same entry points as foreign ones."""
