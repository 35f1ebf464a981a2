"""The conformance suite on the provider `gce`, with external load balancers."""

from proreus.testing.conformance import Conformance

from .conformance_site import GCEFixture, metadata

__all__ = ["metadata"]


class TestExternal(Conformance):
    fixture = GCEFixture
