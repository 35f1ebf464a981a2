"""The conformance suite on the provider `gce`, with backend services and IPv6."""

import pytest

from proreus.testing.conformance import Conformance

from .conformance_site import BackendServiceFixture, metadata

__all__ = ["metadata"]


@pytest.mark.long
class TestBackendService(Conformance):
    fixture = BackendServiceFixture
