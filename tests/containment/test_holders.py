"""Which Node has a machine, and which new one may therefore not get it."""

from proreus.cloudprovider.errors import IdentityConflict
from proreus.cloudprovider.instances import Instance
from proreus.containment.holders import MachineHolders
from proreus.testing import objects

HERE, THERE = "cloud://here", "cloud://there"


def test_a_machine_is_free_once_its_node_is_gone_or_was_made_anew_with_another() -> None:
    answer = Instance(HERE)
    new = objects.node("new", provider_id="")
    one = objects.node("one", provider_id=HERE)
    for after in (None, objects.node("one", provider_id=THERE, uid="other")):
        holders = MachineHolders()
        holders.on_node(None, one)
        assert isinstance(holders.unmistaken(new, answer), IdentityConflict)
        holders.on_node(one, after)  # a list after a gap of the watch shows the last state only
        assert holders.unmistaken(new, answer) is answer


def test_a_machine_that_two_nodes_name_is_free_once_both_are_gone() -> None:
    answer = Instance(HERE)
    new = objects.node("new", provider_id="")
    nodes = [objects.node(name, provider_id=HERE) for name in ("one", "two")]
    for first, second in (nodes, reversed(nodes)):
        holders = MachineHolders()
        for node in nodes:
            holders.on_node(None, node)
        holders.on_node(first, None)
        told = holders.unmistaken(new, answer)
        assert isinstance(told, IdentityConflict)
        assert f"node {second.metadata.name} are both {HERE}" in str(told)
        holders.on_node(second, None)
        assert holders.unmistaken(new, answer) is answer
