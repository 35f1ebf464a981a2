"""Initialise nodes and keep their addresses and labels current."""
