"""Measures the data path of the provider `local`: `python -m benchmarks.local`."""
