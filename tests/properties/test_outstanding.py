"""A pass over the nodes that stand out decides what a pass over all decides, while it is quiet."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from hypothesis import event, given, settings
from hypothesis import strategies as st

from proreus.cloudprovider.instances import Ownership
from proreus.containment.inventory import Sighting
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.controllers.cloud_node_lifecycle.memory import Memory
from proreus.controllers.cloud_node_lifecycle.outlived import ANNOTATION_OUTLIVED
from proreus.controllers.cloud_node_lifecycle.outstanding import is_quiet, stands_out
from proreus.controllers.cloud_node_lifecycle.plan import plan
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, questions
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_UNKNOWN
from proreus.kube.objects import (
    TAINT_AUTOSCALER,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Taint,
)
from proreus.testing import objects

T = TypeVar("T")

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
AT = 10_000.0
POLICIES = (
    Policy(),
    Policy(confirmations=1, startup_grace=0.0, witnesses=0, delete_by_name=True),
    Policy(delete_by_name=True),
)
TIMES = st.none() | st.sampled_from([1.0, AT - 60.0, AT])
SHOWN = st.builds(Sighting, shown=TIMES)
SIGHTINGS = SHOWN | SHOWN | SHOWN | SHOWN | st.builds(Sighting, missing=TIMES, tombstone=TIMES)
FEATURES = st.sampled_from(
    [
        *(("taint", key) for key in (TAINT_UNINITIALIZED, TAINT_AUTOSCALER, "dedicated")),
        *[("taint", TAINT_SHUTDOWN), ("mark", ANNOTATION_GONE), ("mark", ANNOTATION_OUTLIVED)] * 3,
        *(("mark", mark) for mark in (ANNOTATION_UNKNOWN, "another")),
        *(("ready", status) for status in ("False", "Unknown", "")),
        ("deleting", ""),
        ("anonymous", ""),
        ("young", ""),
    ]
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node that is Ready, initialised and old but for at most three features."""
    features = draw(st.lists(FEATURES, max_size=3, unique=True))
    kinds = dict(features)
    status = kinds.get("ready", "True")
    name = f"n{draw(st.integers(0, 10**9))}"
    marks = [mark for kind, mark in features if kind == "mark"]
    taints = [key for kind, key in features if kind == "taint"]
    return objects.node(
        name,
        "" if "anonymous" in kinds else f"sim://{name}",
        creation_timestamp=NOW - timedelta(seconds=1.0 if "young" in kinds else 1e6),
        deletion_timestamp=NOW if "deleting" in kinds else None,
        annotations={mark: draw(st.sampled_from(["true", "true", ""])) for mark in marks},
        taints=tuple(Taint(key, "NoSchedule") for key in taints),
        conditions=(Condition("Ready", status),) if status else (),
    )


@given(
    st.lists(nodes(), min_size=1, max_size=8, unique_by=lambda node: node.metadata.name),
    st.lists(SIGHTINGS, min_size=8, max_size=8),
    st.lists(st.sampled_from(Ownership), min_size=8, max_size=8),
    st.sampled_from(POLICIES),
)
@settings(max_examples=500, deadline=None)
def test_what_does_not_stand_out_decides_nothing_in_a_quiet_pass(
    fleet: list[Node], sightings: list[Sighting], owners: list[Ownership], policy: Policy
) -> None:
    seen = _by_name(fleet, sightings)
    whose = _by_name(fleet, owners)
    known = Known(
        lambda node: whose[node.metadata.name],
        sighting=lambda node: seen[node.metadata.name],
    )
    some = [node for node in fleet if stands_out(node) or known.sighting(node).is_lost]
    event(f"{len(some)} of {len(fleet)}")
    if not is_quiet(some, NOW, known, policy, Memory()):
        return
    event("quiet")
    for asked in (fleet, some):
        found = questions(asked, NOW, known, policy, Memory(), batch_size=10, turn=1, at=AT)
        assert found == ()
    of_all = plan(fleet, (), Memory(), policy, known, now=NOW, at=AT)
    of_some = plan(some, (), Memory(), policy, known, now=NOW, at=AT)
    assert of_some == of_all


def _by_name(fleet: list[Node], values: list[T]) -> Mapping[str, T]:
    return dict(zip((node.metadata.name for node in fleet), values, strict=False))
