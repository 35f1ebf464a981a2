'''Test whether a provider keeps the rules; its author writes one fixture.

    class MyFixture(CloudFixture):
        """A cloud on this machine: how to make machines in it, and how to break it."""

    class TestMyCloud(Conformance):         # in a test module: a test for each rule
        fixture = MyFixture

or, as a report with what to do about each failure:

    python -m proreus.testing.conformance tests.test_mycloud:MyFixture

What a provider or a fixture cannot do is "not offered" and does not fail. Rules come in the order
in which a provider is best written; one that builds on another that fails is "not tried".
'''

from proreus.testing.conformance.fixture import Answer, CloudFixture, NotOffered
from proreus.testing.conformance.rule import Finding, Rule, Status
from proreus.testing.conformance.suite import RULES, Suite
from proreus.testing.conformance.testcase import Conformance

__all__ = [
    "RULES",
    "Answer",
    "CloudFixture",
    "Conformance",
    "Finding",
    "NotOffered",
    "Rule",
    "Status",
    "Suite",
]
