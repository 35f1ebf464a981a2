"""The conformance suite on the provider `gce`, with internal load balancers of a subset of the nodes."""

import pytest

from proreus.testing.conformance import Conformance

from .conformance_site import SubsetFixture, metadata

__all__ = ["metadata"]


@pytest.mark.long
class TestSubset(Conformance):
    fixture = SubsetFixture
