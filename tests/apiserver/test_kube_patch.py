"""Each patch form, and what the API server answers when it does not apply."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from proreus.kube import config, patch
from proreus.kube.client import Client, Written
from proreus.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from proreus.kube.objects import (
    Condition,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    PortStatus,
    Service,
    Taint,
    condition,
)
from proreus.kube.patch import Op, Patch, PatchType
from proreus.kube.requests import LEASES, NODES, SERVICES, Resource
from proreus.testing.controlplane import ControlPlane
from proreus.testing.objects import service_body

from .memory_plane import MemoryPlane

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
OURS = Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true")
FOREIGN = Taint("example.com/foreign", "NoExecute", time_added="2026-01-01T00:00:00Z")
RAW_NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=dict[str, Any])
RAW_SERVICES = Resource("", "v1", "services", "Service", namespaced=True, type=dict[str, Any])


@pytest.fixture
async def client(api_server: ControlPlane | MemoryPlane) -> AsyncIterator[Client]:
    async with Client(config.load(str(api_server.kubeconfig), env={})) as client:
        yield client


@pytest.fixture
async def node(client: Client) -> AsyncIterator[Node]:
    """A node with a foreign taint before and after ours."""
    name = f"node-{uuid4().hex[:8]}"
    taints = [
        {"key": FOREIGN.key, "effect": FOREIGN.effect, "timeAdded": FOREIGN.time_added},
        {"key": OURS.key, "effect": OURS.effect, "value": OURS.value},
        {"key": "example.com/last", "effect": "NoSchedule"},
    ]
    labels = {"a/b.c": "old", "kept": "yes"}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
    await client.create(NODES, body)
    yield await client.get(NODES, name)
    await remove(client, NODES, name)


@pytest.fixture
async def bare_node(client: Client) -> AsyncIterator[Node]:
    """A node without labels, annotations, taints and provider id."""
    name = f"bare-{uuid4().hex[:8]}"
    await client.create(NODES, {"metadata": {"name": name}})
    # Admission taints every new node as not ready.
    made = await client.get(NODES, name)
    await client.patch(
        NODES, name, patch.json_patch(made.metadata.uid, patch.taints(made.spec.taints, ()))
    )
    yield await client.get(NODES, name)
    await remove(client, NODES, name)


@pytest.fixture
async def service(client: Client) -> AsyncIterator[Service]:
    name = f"service-{uuid4().hex[:8]}"
    body = service_body(name, metadata={"finalizers": ["example.com/foreign"]})
    await client.create(SERVICES, body, "default")
    yield await client.get(SERVICES, name, "default")
    await client.patch(
        SERVICES, name, Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}), "default"
    )
    await remove(client, SERVICES, name, "default")


async def remove(client: Client, resource: Resource[Any], name: str, namespace: str = "") -> None:
    try:
        await client.delete(resource, name, namespace)
    except NotFound:
        return


async def patched(client: Client, node: Node, ops: list[Op]) -> Node:
    written = await client.patch(
        NODES, node.metadata.name, patch.json_patch(node.metadata.uid, ops)
    )
    after = await client.get(NODES, node.metadata.name)
    assert written == Written(after.metadata.uid, int(after.metadata.resource_version))
    return after


async def patched_service(client: Client, service: Service, change: Patch) -> Service:
    await client.patch(SERVICES, service.metadata.name, change, "default", "status")
    return await client.get(SERVICES, service.metadata.name, "default")


async def test_labels_are_set_changed_and_removed_and_others_stay(
    client: Client, node: Node
) -> None:
    wanted = {"a/b.c": "new", "added": "", "absent": None}

    after = await patched(client, node, patch.labels(node.metadata.labels, wanted))

    assert after.metadata.labels == {"a/b.c": "new", "kept": "yes", "added": ""}
    gone = await patched(client, after, patch.labels(after.metadata.labels, {"a/b.c": None}))
    assert gone.metadata.labels == {"kept": "yes", "added": ""}


async def test_the_first_label_and_annotation_make_their_map(
    client: Client, bare_node: Node
) -> None:
    assert not bare_node.metadata.labels
    assert not bare_node.metadata.annotations
    ops = patch.labels({}, {"a/b": "1", "c": "2"}) + patch.annotations({}, {"d": "3"})

    after = await patched(client, bare_node, ops)

    assert after.metadata.labels == {"a/b": "1", "c": "2"}
    assert after.metadata.annotations == {"d": "3"}


async def test_the_last_label_can_be_removed(client: Client, bare_node: Node) -> None:
    after = await patched(client, bare_node, patch.labels({}, {"only": "1"}))

    gone = await patched(client, after, patch.labels(after.metadata.labels, {"only": None}))

    assert not gone.metadata.labels


@pytest.mark.parametrize(
    "stale",
    [
        {"kept": "something else"},  # it has changed
        {"removed": "meanwhile"},  # it is gone
        {},  # there were none
    ],
)
async def test_a_label_that_changed_meanwhile_is_a_conflict(
    client: Client, node: Node, stale: dict[str, str]
) -> None:
    wanted = dict.fromkeys(stale or {"kept": ""}, "mine")

    with pytest.raises(Conflict):
        await patched(client, node, patch.labels(stale, wanted))

    assert (await client.get(NODES, node.metadata.name)).metadata == node.metadata


async def test_a_label_map_that_vanished_meanwhile_is_a_conflict(
    client: Client, bare_node: Node
) -> None:
    with pytest.raises(Conflict) as caught:
        await patched(client, bare_node, patch.labels({"was": "there"}, {"other": "1"}))

    assert (caught.value.code, caught.value.causes) == (422, ())


async def test_a_label_that_is_not_valid_is_no_conflict(client: Client, node: Node) -> None:
    with pytest.raises(Invalid) as caught:
        await patched(client, node, patch.labels(node.metadata.labels, {"x": "not valid!"}))

    assert caught.value.causes[0].field == "metadata.labels"


async def test_removing_our_taint_keeps_foreign_ones_whole(client: Client, node: Node) -> None:
    before = await client.get(RAW_NODES, node.metadata.name)
    kept = tuple(taint for taint in node.spec.taints if taint != OURS)
    assert len(kept) == len(node.spec.taints) - 1

    after = await patched(client, node, patch.taints(node.spec.taints, kept))

    assert after.spec.taints == kept
    raw = await client.get(RAW_NODES, node.metadata.name)
    expected = [taint for taint in before["spec"]["taints"] if taint["key"] != OURS.key]
    assert raw["spec"]["taints"] == expected


async def test_taints_are_removed_and_added_in_one_patch(client: Client, node: Node) -> None:
    new = Taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule")
    kept = tuple(taint for taint in node.spec.taints if taint.key == FOREIGN.key)

    after = await patched(client, node, patch.taints(node.spec.taints, (*kept, new)))

    assert after.spec.taints == (*kept, new)


async def test_the_first_taint_makes_the_list_and_the_last_takes_it_away(
    client: Client, bare_node: Node
) -> None:
    assert bare_node.spec.taints == ()

    after = await patched(client, bare_node, patch.taints((), (OURS,)))
    assert after.spec.taints == (OURS,)

    empty = await patched(client, after, patch.taints(after.spec.taints, ()))
    assert empty.spec.taints == ()


async def test_a_taint_appended_by_others_meanwhile_survives(client: Client, node: Node) -> None:
    theirs = Taint("example.com/new", "NoSchedule")
    await patched(client, node, patch.taints(node.spec.taints, (*node.spec.taints, theirs)))

    kept = tuple(taint for taint in node.spec.taints if taint != OURS)
    after = await patched(client, node, patch.taints(node.spec.taints, kept))

    assert after.spec.taints == (*kept, theirs)


@pytest.mark.parametrize("removed", ["before", "itself", "all"])
async def test_a_taint_that_moved_or_went_meanwhile_is_a_conflict(
    client: Client, node: Node, removed: str
) -> None:
    others = {
        "before": tuple(taint for taint in node.spec.taints if taint.key != FOREIGN.key),
        "itself": node.spec.taints[:1],
        "all": (),
    }
    changed = await patched(client, node, patch.taints(node.spec.taints, others[removed]))
    kept = tuple(taint for taint in node.spec.taints if taint != OURS)

    with pytest.raises(Conflict):
        await patched(client, node, patch.taints(node.spec.taints, kept))

    assert (await client.get(NODES, node.metadata.name)).spec.taints == changed.spec.taints


@pytest.mark.parametrize("was", ["true", ""])
async def test_a_taint_to_which_others_gave_another_value_is_a_conflict(
    client: Client, node: Node, was: str
) -> None:
    """Key and effect are those of ours, but it is theirs by now."""
    others = tuple(taint for taint in node.spec.taints if taint != OURS)
    ours = Taint(OURS.key, OURS.effect, was)
    found = await patched(client, node, patch.taints(node.spec.taints, (*others, ours)))
    theirs = Taint(OURS.key, OURS.effect, "theirs")
    changed = await patched(client, found, patch.taints(found.spec.taints, (*others, theirs)))

    with pytest.raises(Conflict):
        await patched(client, found, patch.taints(found.spec.taints, others))

    assert (await client.get(NODES, node.metadata.name)).spec.taints == changed.spec.taints


async def test_a_taint_that_was_added_meanwhile_is_a_conflict(client: Client, node: Node) -> None:
    stale = tuple(taint for taint in node.spec.taints if taint != OURS)

    with pytest.raises(Conflict) as caught:
        await patched(client, node, patch.taints(stale, (*stale, OURS)))

    assert caught.value.causes[0].reason == "FieldValueDuplicate"


async def test_a_field_is_set_once(client: Client, bare_node: Node) -> None:
    ops = patch.set_once("/spec/providerID", "cloud://one")

    after = await patched(client, bare_node, ops)

    assert after.spec.provider_id == "cloud://one"
    with pytest.raises(Conflict):
        await patched(client, bare_node, patch.set_once("/spec/providerID", "cloud://two"))


async def test_finalizers_are_set_as_a_list_that_is_known(client: Client, bare_node: Node) -> None:
    first = await patched(client, bare_node, patch.finalizers((), ("example.com/a",)))
    both = ("example.com/a", "example.com/b")
    second = await patched(client, first, patch.finalizers(("example.com/a",), both))
    assert second.metadata.finalizers == both

    with pytest.raises(Conflict):
        await patched(client, second, patch.finalizers(("example.com/a",), ()))

    none = await patched(client, second, patch.finalizers(both, ()))
    assert none.metadata.finalizers == ()


@pytest.mark.parametrize("kind", ["json", "strategic"])
async def test_another_uid_is_a_conflict(client: Client, node: Node, kind: str) -> None:
    other = str(uuid4())
    if kind == "json":
        change = patch.json_patch(other, patch.labels(node.metadata.labels, {"x": "y"}))
        sub = ""
    else:
        change = patch.status(other, addresses=(NodeAddress("InternalIP", "10.0.0.1"),))
        sub = "status"

    with pytest.raises(Conflict):
        await client.patch(NODES, node.metadata.name, change, subresource=sub)

    assert await client.get(NODES, node.metadata.name) == node


@pytest.mark.parametrize("kind", [PatchType.MERGE, PatchType.STRATEGIC])
async def test_another_version_is_a_conflict(client: Client, node: Node, kind: PatchType) -> None:
    await patched(client, node, patch.labels(node.metadata.labels, {"x": "y"}))
    meta = {"resourceVersion": node.metadata.resource_version, "labels": {"x": "z"}}

    with pytest.raises(Conflict) as caught:
        await client.patch(NODES, node.metadata.name, Patch(kind, {"metadata": meta}))

    assert caught.value.code == 409


async def test_a_patch_of_an_absent_object_is_not_found(client: Client) -> None:
    change = patch.json_patch("uid", patch.labels({}, {"x": "y"}))

    with pytest.raises(NotFound):
        await client.patch(NODES, "absent", change)


async def test_addresses_are_replaced_also_those_of_one_type(client: Client, node: Node) -> None:
    first = (NodeAddress("InternalIP", "10.0.0.1"), NodeAddress("ExternalIP", "192.0.2.1"))
    second = (
        NodeAddress("InternalIP", "10.0.0.2"),
        NodeAddress("InternalIP", "fd00::2"),
        NodeAddress("Hostname", "two"),
    )
    for wanted in (first, second, second[::-1], ()):
        change = patch.status(node.metadata.uid, addresses=wanted)
        await client.patch(NODES, node.metadata.name, change, subresource="status")
        assert (await client.get(NODES, node.metadata.name)).status.addresses == wanted


async def test_conditions_of_a_node_merge_by_type(client: Client, node: Node) -> None:
    theirs = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    raw = Patch(PatchType.STRATEGIC, {"status": {"conditions": [theirs]}})
    await client.patch(NODES, node.metadata.name, raw, subresource="status")

    for status in ("False", "True"):
        ours = Condition("CloudInitialized", status, "Why", f"it is {status}", NOW)
        change = patch.status(
            node.metadata.uid, addresses=(NodeAddress("Hostname", "a"),), conditions=(ours,)
        )
        await client.patch(NODES, node.metadata.name, change, subresource="status")

        after = await client.get(NODES, node.metadata.name)
        assert after.status.addresses == (NodeAddress("Hostname", "a"),)
        found = condition(after.status.conditions, "CloudInitialized")
        seconds = NOW.replace(microsecond=0)
        assert found == Condition("CloudInitialized", status, "Why", f"it is {status}", seconds)
        ready = condition(after.status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("True", "KubeletReady")


async def test_finalizer_condition_and_ingress_go_through_services_status_in_one_patch(
    client: Client, service: Service
) -> None:
    meta = service.metadata
    theirs = Condition("example.com/Theirs", "True", "Fine", "theirs", NOW)
    await patched_service(client, service, patch.status(meta.uid, conditions=(theirs,)))
    present = await client.get(SERVICES, meta.name, "default")
    points = (
        LoadBalancerIngress(ip="192.0.2.1", ip_mode="VIP", ports=(PortStatus(80, "TCP"),)),
        LoadBalancerIngress(hostname="lb.example.com"),
    )
    ours = Condition("LoadBalancerReady", "True", "Ensured", "ensured", NOW)
    change = patch.service_status(
        meta.uid,
        present.metadata.resource_version,
        added_finalizers=("service.kubernetes.io/load-balancer-cleanup",),
        conditions=(ours,),
        load_balancer=LoadBalancerStatus(points),
    )

    after = await patched_service(client, service, change)

    assert set(after.metadata.finalizers) == {
        "example.com/foreign",
        "service.kubernetes.io/load-balancer-cleanup",
    }
    assert after.status.load_balancer.ingress == points
    assert {c.type for c in after.status.conditions} == {"example.com/Theirs", "LoadBalancerReady"}
    with pytest.raises(Conflict) as caught:  # it is not that version any more
        await patched_service(client, service, change)
    assert caught.value.code == 409


async def test_finalizer_condition_and_ingress_go_away_in_one_patch(
    client: Client, service: Service
) -> None:
    meta = service.metadata
    cleanup = "service.kubernetes.io/load-balancer-cleanup"
    both = tuple(Condition(name, "True", "Fine", "", NOW) for name in ("Ours", "Theirs"))
    status = LoadBalancerStatus((LoadBalancerIngress(ip="192.0.2.1", ip_mode="Proxy"),))
    full = await patched_service(
        client,
        service,
        patch.service_status(
            meta.uid,
            meta.resource_version,
            added_finalizers=(cleanup,),
            conditions=both,
            load_balancer=status,
        ),
    )
    assert full.status.load_balancer == status

    empty = await patched_service(
        client,
        service,
        patch.service_status(
            meta.uid,
            full.metadata.resource_version,
            removed_finalizers=(cleanup,),
            removed_conditions=("Ours",),
            load_balancer=LoadBalancerStatus(),
        ),
    )

    assert empty.metadata.finalizers == ("example.com/foreign",)
    assert [c.type for c in empty.status.conditions] == ["Theirs"]
    assert empty.status.load_balancer.ingress == ()


async def test_an_ingress_replaces_the_one_before(client: Client, service: Service) -> None:
    for ip in ("192.0.2.1", "192.0.2.2"):
        status = LoadBalancerStatus((LoadBalancerIngress(ip=ip, ip_mode="VIP"),))
        change = patch.status(service.metadata.uid, load_balancer=status)
        after = await patched_service(client, service, change)
        assert after.status.load_balancer == status


async def test_a_condition_that_is_not_there_can_be_removed(
    client: Client, service: Service
) -> None:
    meta = service.metadata
    change = patch.service_status(meta.uid, meta.resource_version, removed_conditions=("Absent",))

    after = await patched_service(client, service, change)

    assert after.status.conditions == ()


async def test_nodes_status_changes_no_spec_and_services_status_no_spec(
    client: Client, node: Node, service: Service
) -> None:
    change = Patch(PatchType.STRATEGIC, {"spec": {"providerID": "cloud://x"}})
    await client.patch(NODES, node.metadata.name, change, subresource="status")
    spec = Patch(PatchType.STRATEGIC, {"spec": {"loadBalancerIP": "192.0.2.9"}})

    assert (await client.get(NODES, node.metadata.name)).spec == node.spec
    assert (await patched_service(client, service, spec)).spec == service.spec


async def test_an_ip_without_mode_gets_one(client: Client, service: Service) -> None:
    status = LoadBalancerStatus((LoadBalancerIngress(ip="192.0.2.1"),))

    after = await patched_service(
        client, service, patch.status(service.metadata.uid, load_balancer=status)
    )

    assert after.status.load_balancer.ingress[0].ip_mode == "VIP"


@pytest.mark.parametrize("wrong", ["uid", "resource_version"])
async def test_a_failed_precondition_of_a_delete_is_a_conflict(
    client: Client, node: Node, wrong: str
) -> None:
    meta = node.metadata
    right: dict[str, Any] = {"uid": meta.uid, "resource_version": meta.resource_version}
    value = str(uuid4()) if wrong == "uid" else "1"

    with pytest.raises(Conflict) as caught:
        await client.delete(NODES, node.metadata.name, **{**right, wrong: value})

    assert caught.value.code == 409
    assert await client.get(NODES, node.metadata.name) == node
    await client.delete(NODES, node.metadata.name, **right)
    with pytest.raises(NotFound):
        await client.get(NODES, node.metadata.name)


async def test_a_name_that_is_taken_already_exists(client: Client, node: Node) -> None:
    with pytest.raises(AlreadyExists):
        await client.create(NODES, {"metadata": {"name": node.metadata.name}})


async def test_a_lease_is_replaced_only_at_the_version_it_was_read(client: Client) -> None:
    name = f"lease-{uuid4().hex[:8]}"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15}
    made = await client.create_lease("default", {"metadata": {"name": name}, "spec": spec})
    read = await client.get_lease("default", name)
    assert read == made
    assert read["spec"] == spec

    written = await client.replace_lease(
        "default", name, {**read, "spec": {**read["spec"], "holderIdentity": "b"}}
    )

    assert written["spec"] == {**spec, "holderIdentity": "b"}
    with pytest.raises(Conflict):
        await client.replace_lease("default", name, read)
    await client.delete(LEASES, name, "default")


async def test_patches_at_once_all_apply(client: Client, node: Node) -> None:
    """The API server itself repeats a JSON Patch that meets another write."""
    uid = node.metadata.uid
    changes = [
        patch.json_patch(uid, patch.annotations({"x": ""}, {f"a{i}": "1"})) for i in range(8)
    ]
    await patched(client, node, patch.annotations({}, {"x": ""}))

    await asyncio.gather(*(client.patch(NODES, node.metadata.name, change) for change in changes))

    after = await client.get(NODES, node.metadata.name)
    assert set(after.metadata.annotations) == {"x", *(f"a{i}" for i in range(8))}
