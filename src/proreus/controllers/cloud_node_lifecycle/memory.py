"""Hand over from one pass to the next what is known of each scope, and which alarms were raised."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from proreus.controllers.cloud_node_lifecycle.breaker import Breaker
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence
from proreus.controllers.cloud_node_lifecycle.witnesses import Ending, Key, Missing, View

Scope = str | None
"""The scope that `Instances.scope` returns; None if the provider cannot tell."""


class Alert(StrEnum):
    """The kinds of alarms about a node."""

    UNKNOWN = "unknown"
    """The node is Ready, and the cloud does not know its machine."""
    ASIDE = "aside"
    """The cloud has not known the Ready node for so long that it is a witness no more."""
    BREAKER = "breaker"
    """The node is not deleted: too many look gone."""
    NO_WITNESS = "no-witness"
    """The node is not deleted: no node of its scope is Ready."""
    WITNESS_MISSING = "witness-missing"
    """The node is not deleted: the cloud does not know Ready nodes of its scope."""
    NOT_SHOWN = "not-shown"
    """The node is not deleted: witnesses were set aside, and its machine was never seen."""
    STRANGE = "strange"
    """The node is not deleted: the cloud did not know its machine even while it was Ready."""
    OUTLIVED = "outlived"
    """The node is not deleted: it has another machine than the instance that is gone."""
    NO_SCOPE = "no-scope"
    """The node is not deleted: the provider does not say which scope it is of."""
    IN_SERVICE = "in-service"
    """The machine is powered off, and the node is not marked as out of service."""


class Wait(msgspec.Struct, frozen=True):
    """The decision to keep a node that looks gone, until `until` at the earliest, if that is known.

    `hold` is a reason to wait that more answers of the same kind will not end by themselves; None
    if they will.
    """

    until: float | None
    reason: str
    hold: Alert | None = None


class ScopeMemory(msgspec.Struct, frozen=True):
    """The memory of one scope.

    Attributes:
        evidence: The evidence of the absence of machines.
        missing: The Ready nodes that the cloud does not know.
        strange: The nodes that the cloud did not know while they were Ready, and has not shown
            since, each with the time since when: even if their machines lived, the cloud would not
            know them.
        endings: The recent returns of nodes that had been missing.
        views: The answers that are kept until their missing witnesses are explained.
        breaker: The state of the breaker.
        off: The evidence of machines being powered off.
        awake: The Ready nodes whose machines the cloud shows as powered off.
        outlasting: The nodes that were Ready for `Policy.outlasting` after the cloud had begun to
            show their machines as powered off, and has not shown them as running since.
        judged: The nodes that were in question, each with when the pass decided.
    """

    evidence: Mapping[Key, Evidence] = {}
    missing: Mapping[Key, Missing] = {}
    strange: Mapping[Key, float] = {}
    endings: tuple[Ending, ...] = ()
    views: tuple[View, ...] = ()
    breaker: Breaker = Breaker()
    off: Mapping[Key, Evidence] = {}
    awake: frozenset[Key] = frozenset()
    outlasting: frozenset[Key] = frozenset()
    judged: Mapping[Key, float] = {}


class Memory(msgspec.Struct, frozen=True):
    """The memory of all scopes, and of single nodes.

    `reported` is when each alarm was last reported, by node uid; `outlived` the nodes that have
    outlived their instance.
    """

    scopes: Mapping[Scope, ScopeMemory] = {}
    reported: Mapping[tuple[str, Alert], float] = {}
    outlived: frozenset[Key] = frozenset()
