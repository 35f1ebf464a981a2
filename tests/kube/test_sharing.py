"""Equal texts of many nodes are kept once."""

from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from proreus.kube.objects import Condition, Node, Service, WholeTaints
from proreus.kube.sharing import Texts


def decoded(name: str) -> Node:
    """A node with a value in every field, decoded anew."""
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "is well"}
    body = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a zone"},
            "annotations": {"an annotation": f"of {name}"},
            "finalizers": ["a finalizer"],
        },
        "spec": {"providerID": f"cloud://{name}", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": name}],
            "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "nodeInfo": {"systemUUID": f"uuid-{name}"},
        },
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Node)


def test_a_shared_node_is_equal_to_the_node_in_every_field() -> None:
    node = decoded("a")
    assert node.metadata.deletion_timestamp == datetime(2026, 1, 2, tzinfo=UTC)
    fields = msgspec.structs.asdict(node.metadata) | msgspec.structs.asdict(node.status)
    assert all(fields[name] for name in fields if name != "namespace")

    assert Texts().shared(node) == node


def test_two_nodes_have_the_same_texts_for_what_is_alike() -> None:
    texts = Texts()
    one, other = texts.shared(decoded("a")), texts.shared(decoded("b"))

    for first, second in zip(one.status.conditions, other.status.conditions, strict=True):
        for field in ("type", "status", "reason", "message"):
            assert getattr(first, field) is getattr(second, field)
    assert one.status.addresses[0].type is other.status.addresses[0].type
    zones = [node.metadata.labels["topology.kubernetes.io/zone"] for node in (one, other)]
    assert zones[0] is zones[1]
    assert list(map(id, one.metadata.labels)) == list(map(id, other.metadata.labels))


def test_what_has_not_changed_is_taken_from_the_object_before() -> None:
    texts = Texts()
    before = texts.shared(decoded("a"))
    again = texts.shared(decoded("a"), before)

    assert again == before
    assert again.metadata.labels is before.metadata.labels
    assert again.metadata.annotations is before.metadata.annotations
    assert again.status.addresses is before.status.addresses
    assert again.status.conditions is before.status.conditions


def test_what_has_changed_is_that_of_the_new_object() -> None:
    texts = Texts()
    before, new = texts.shared(decoded("a")), decoded("b")
    more = Condition("Initialized", "True", "Done")
    status = replace(new.status, conditions=(*before.status.conditions, more))
    new = replace(new, status=status)
    shared = texts.shared(new, before)

    assert shared == new
    assert shared.status.conditions[0] is before.status.conditions[0]
    fewer = replace(new, status=replace(status, conditions=(more,)))
    assert texts.shared(fewer, new) == fewer


def test_taints_are_never_those_of_the_object_before() -> None:
    """They may look alike, and one list of them have a field that is not known."""
    new = decoded("a")
    whole = WholeTaints(new.spec.taints)
    before = replace(new, spec=replace(new.spec, taints=whole))
    assert whole == new.spec.taints

    assert not isinstance(Texts().shared(new, before).spec.taints, WholeTaints)
    assert Texts().shared(before, new).spec.taints is whole


def test_texts_do_not_pile_up() -> None:
    texts = Texts(limit=10)
    first, again = (b"some text".decode() for _ in range(2))
    assert texts.shared_text(first) is first
    for number in range(100):
        texts.shared_text(f"rare {number}")

    assert again is not first
    assert texts.shared_text(again) is again
    assert len(texts._known) <= 10


def test_other_objects_stay_as_they_are() -> None:
    service = Service()

    assert Texts().shared(service) is service
