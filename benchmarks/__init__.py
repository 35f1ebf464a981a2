"""Benchmarks: the manager beside one of the Go framework, on the same work in one run."""
