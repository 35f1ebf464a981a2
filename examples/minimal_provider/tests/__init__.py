"""Tests of the provider `minimal`."""
