"""Shipped for tests of Proreus and of cloud providers.

Conformance, builders of objects, a real control plane, a simulated cloud, players, clock, demo.
"""
