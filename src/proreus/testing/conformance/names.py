"""The rule about names: what a machine is called is the cloud's word."""

import uuid

from proreus.cloudprovider import Instance
from proreus.testing.conformance.answers import Violated
from proreus.testing.conformance.machines import NAME_TYPES, machine_found
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import Site, describe, node


@rule(machine_found)
async def names(site: Site) -> None:
    """A machine is called what the cloud calls it, not what its Node is called.

    Set `Instance.name`, and the names among `addresses`, to what the cloud says, and leave them out
    where it says none; where all is the Node's own word, set `self_reported`. A kubelet gets a
    serving certificate for these names, and chooses its Node's name and provider id itself.
    """
    started = await site.start()
    (one,) = await site.nodes(started, 1)
    claimed = f"claimed-{uuid.uuid4().hex[:8]}"
    asked = node(claimed, one.spec.provider_id)
    answer = (await describe(started, [asked])).get(claimed)
    if not isinstance(answer, Instance) or answer.self_reported:
        return
    said = [answer.name, *(each.address for each in answer.addresses if each.type in NAME_TYPES)]
    if repeated := [text for text in said if claimed in text.lower()]:
        raise Violated(
            f"asked for {one.spec.provider_id} under the name {claimed}, which only the Node has,"
            f" describe answered with the name {repeated[0]}"
        )


RULES = (names,)
