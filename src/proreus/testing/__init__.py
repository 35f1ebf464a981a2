"""Test tools for Proreus and for authors of cloud providers; part of the wheel.

Conformance, builders of objects, a real control plane, a simulated cloud, players, clock, demo.
"""
