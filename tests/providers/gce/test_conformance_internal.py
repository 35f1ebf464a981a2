"""The conformance suite on the provider `gce`, with internal load balancers."""

import pytest

from proreus.testing.conformance import Conformance

from .conformance_site import InternalFixture, metadata

__all__ = ["metadata"]


@pytest.mark.long
class TestInternal(Conformance):
    fixture = InternalFixture
