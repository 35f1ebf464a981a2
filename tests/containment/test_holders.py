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
