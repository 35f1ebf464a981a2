"""Shipped for tests of Proreus and of cloud providers: control plane, fakes, players, clock."""
