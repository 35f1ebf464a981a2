"""The hosts that Services share."""

from proreus.cloudprovider import HostPolicy, Ownership
from proreus.cloudprovider.desired import hosts
from proreus.controllers.service.hosts import HostSets, candidates
from proreus.kube.objects import Node
from proreus.testing import objects

IPV4 = ("IPv4",)


def node(name: str, address: str = "10.0.0.1", **labels: str) -> Node:
    return objects.node(name, f"sim://{name}", addresses=[address], labels=labels)


def test_services_with_equal_policies_share_one_tuple() -> None:
    sets, nodes = HostSets(), [node("a"), node("b", pool="x")]
    first = sets.select(nodes, HostPolicy(), IPV4)
    assert first == hosts(nodes, HostPolicy(), IPV4)
    assert sets.select(nodes, HostPolicy(), IPV4) is first
    chosen = sets.select(nodes, HostPolicy(selector={"pool": "x"}), IPV4)
    assert [host.node for host in chosen] == ["b"]


def test_after_a_change_the_hosts_are_those_of_the_nodes() -> None:
    sets = HostSets()
    sets.select([node("a")], HostPolicy(), IPV4)
    sets.changed()
    moved = sets.select([node("a", "10.0.0.9")], HostPolicy(), IPV4)
    assert moved[0].addresses == {"IPv4": ("10.0.0.9",)}


def test_hosts_that_a_change_left_equal_stay_the_same_object() -> None:
    sets, nodes = HostSets(), [node("a")]
    first = sets.select(nodes, HostPolicy(), IPV4)
    sets.changed()
    sets.changed()
    assert sets.select(nodes, HostPolicy(), IPV4) is first


def test_policies_that_nobody_uses_any_more_are_forgotten() -> None:
    sets, nodes = HostSets(), [node("a")]
    former = sets.select(nodes, HostPolicy(), IPV4)
    for _ in range(2):
        sets.changed()
        sets.select(nodes, HostPolicy(selector={"pool": "x"}), IPV4)
    assert sets.select(nodes, HostPolicy(), IPV4) is not former


def test_only_nodes_that_are_surely_of_another_cloud_are_no_candidates() -> None:
    whose = {"ours": Ownership.YES, "theirs": Ownership.NO, "anybodys": Ownership.UNKNOWN}
    found = candidates([node(name) for name in whose], lambda one: whose[one.metadata.name])
    assert [one.metadata.name for one in found] == ["ours", "anybodys"]
