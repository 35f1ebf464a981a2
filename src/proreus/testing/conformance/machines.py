"""Rules about machines: which are found, which are gone, and how batches are answered."""

import ipaddress
import re
import uuid
from collections.abc import Mapping

import msgspec

from proreus.cloudprovider import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    NotSupported,
    Ownership,
)
from proreus.kube.objects import Node, NodeAddress
from proreus.testing.conformance.answers import Violated, instance, outcome, shown
from proreus.testing.conformance.fixture import NotOffered
from proreus.testing.conformance.ids import cut_off, never_given
from proreus.testing.conformance.offers import DECLARED
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import CLUSTER, Site, Started, describe, node

_LARGEST_BATCH = 200
_PROVIDER_ID = re.compile(r"[a-z][a-z0-9.-]*://\S+")
_CLAIMED = NodeAddress("InternalIP", "198.18.255.254")
_IP_TYPES = {"InternalIP", "ExternalIP"}
NAME_TYPES = {"Hostname", "InternalDNS", "ExternalDNS"}
"""The types of addresses that are names."""


@rule()
async def capabilities(site: Site) -> None:
    """The provider has machines or load balancers.

    Set `self.instances` or `self.load_balancers` in the provider's `start`.
    """
    started = await site.start()
    if started.provider.instances is None and started.provider.load_balancers is None:
        raise Violated("after start, instances and load_balancers are both None")


@rule(capabilities)
async def lacks_true(site: Site) -> None:
    """The cloud does lack what the fixture's `lacks` names.

    Take out of `lacks` what the provider or the cloud has by now: its rules are not tried.
    """
    started = await site.start()
    for what in site.cloud.lacks:
        has = _foretells if what in {"fingerprint", "preview"} else _has
        if await has(site, started, what):
            raise Violated(f"`lacks` names {what!r}, but it is offered")


async def _has(site: Site, started: Started, what: str) -> bool:
    """Tell whether fixture and provider have what `lacks` names."""
    provider = started.provider
    instances, load_balancers = provider.instances, provider.load_balancers
    match what:
        case "endpoint":
            return bool(site.cloud.endpoint)
        case "batches":
            return instances is not None and instances.batch_size > 1
        case "list_owned":
            if load_balancers is None:
                return False
            listed = await outcome(load_balancers.list_owned(CLUSTER))
            return not isinstance(listed, NotSupported)
        case "groups":
            refs = [site.desired(started, ()).ref for _ in range(2)] if load_balancers else []
            return len({started.load_balancers.group(ref) for ref in refs}) > 1
        case capability:
            return getattr(provider, capability) is not None


async def _foretells(site: Site, started: Started, what: str) -> bool:
    """Tell whether the provider has fingerprints, or previews."""
    if started.provider.load_balancers is None:
        return False
    desired = site.desired(started, ())
    if what == "fingerprint":
        return bool(started.load_balancers.fingerprint(desired))
    function = getattr(started.load_balancers, "preview", None)
    answers = await outcome(function([desired])) if function is not None else {}
    said = answers.get(desired.ref.uid) if isinstance(answers, Mapping) else answers
    return said is not None and not isinstance(said, NotSupported)


@rule(capabilities, wants=("instances", "create_machines"))
async def machine_found(site: Site) -> None:
    """A machine is found by its name, and by its provider id.

    Let `describe` answer with an `Instance` under the Node's name: looked up by
    `node.spec.provider_id`, or by `node.metadata.name` while that is empty.
    """
    started = await site.start()
    (by_name,) = await site.nodes(started, 1)
    name = by_name.metadata.name
    instance(name, await describe(started, [by_name]))


@rule(machine_found)
async def provider_id(site: Site) -> None:
    """The provider id has the form <provider>://<id>, is unique and stays the same.

    Make it of the provider's name and of what the cloud never changes and never gives to another
    machine, such as the machine's id; not of its name or address.
    """
    started = await site.start()
    nodes = await site.nodes(started, 2)
    ids = [one.spec.provider_id for one in nodes]
    if len(set(ids)) < len(ids):
        raise Violated(f"two machines have the provider id {ids[0]!r}")
    again = await (await site.start()).instances.describe(nodes)
    for one in nodes:
        if not _PROVIDER_ID.fullmatch(one.spec.provider_id):
            raise Violated(f"the provider id is {one.spec.provider_id!r}")
        now = instance(one.metadata.name, again).provider_id
        if now != one.spec.provider_id:
            raise Violated(f"by name it was {one.spec.provider_id!r}, by id it is {now!r}")


@rule(machine_found)
async def addresses(site: Site) -> None:
    """Addresses are valid and the cloud's, and there is an IP address among them.

    Set `Instance.addresses` to `NodeAddress("InternalIP", …)` and the like; the types are
    InternalIP, ExternalIP, Hostname, InternalDNS and ExternalDNS. Where the cloud knows none, and
    they are those that the Node says it has, set `self_reported`.
    """
    started = await site.start()
    (one,) = await site.nodes(started, 1)
    found = one.status.addresses
    if not any(address.type in _IP_TYPES for address in found):
        raise Violated(f"there is no IP address among {[(a.type, a.address) for a in found]}")
    for address in found:
        _check_address(address)
    status = msgspec.structs.replace(one.status, addresses=(*found, _CLAIMED))
    claiming = msgspec.structs.replace(one, status=status)
    said = instance(one.metadata.name, await describe(started, [claiming]))
    if _CLAIMED in said.addresses and not said.self_reported:
        raise Violated(f"{_CLAIMED.address}, which only the Node says that it has, is an address")


def _check_address(address: NodeAddress) -> None:
    text = f"there is an address {address.address!r} of type {address.type!r}"
    if address.type not in _IP_TYPES | NAME_TYPES or not address.address:
        raise Violated(text)
    if address.type in _IP_TYPES:
        try:
            ipaddress.ip_address(address.address)
        except ValueError as error:
            raise Violated(text) from error


@rule(machine_found, wants=("remove_machine",))
async def absence_said(site: Site) -> None:
    """A machine that does not exist is NotFound, by id and by name.

    Answer `NotFound()` where the cloud itself says that there is no such machine, else Nodes of
    machines that are gone stay for ever. `NotFound(tombstone=True)` is for an answer that shows
    that very id as terminated, and deletes without witnesses: an id that the cloud only does not
    know, as it is with another account's credentials, is none, and a name never proves it.
    """
    started = await site.start()
    (gone,) = await site.nodes(started, 1)
    name = gone.metadata.name
    await site.cloud.remove_machine(name)
    for what, asked in (
        ("the provider id", gone),
        ("the name", node(name)),
        ("the name", node(f"never-{uuid.uuid4().hex[:8]}")),
    ):
        answer = (await describe(started, [asked])).get(asked.metadata.name)
        if not isinstance(answer, NotFound):
            raise Violated(
                f"looked up by {what}, a machine that is gone: describe answered {_said(answer)}"
            )
        if answer.tombstone and not asked.spec.provider_id:
            raise Violated("by a name, describe answered NotFound(tombstone=True)")
    unknown = node(name, never_given(gone.spec.provider_id))
    found = await outcome(describe(started, [unknown]))
    answer = None if isinstance(found, Exception) else found.get(name)
    if isinstance(answer, NotFound) and answer.tombstone:
        id_ = unknown.spec.provider_id
        raise Violated(f"for {id_!r}, which no machine ever had, describe answered {_said(answer)}")


@rule(machine_found, wants=("remove_machine",))
async def identity(site: Site) -> None:
    """A Node with a provider id is never taken for another machine of the same name.

    If the Node has a provider id, look up by that and nothing else; answer `NotFound` or an
    `IdentityConflict` rather than an `Instance` with another id. While the machine of the id is
    there, whatever it is called, never answer `NotFound`: its Node would be deleted.
    """
    started = await site.start()
    first, second = await site.nodes(started, 2)
    mixed = node(second.metadata.name, first.spec.provider_id)
    answer = (await describe(started, [mixed])).get(mixed.metadata.name)
    _check_identity(mixed, answer)
    if isinstance(answer, NotFound):
        raise Violated(f"for the id of a machine of another name, describe said {_said(answer)}")
    await site.cloud.remove_machine(first.metadata.name)
    await site.cloud.create_machines([first.metadata.name])
    answer = (await describe(started, [first])).get(first.metadata.name)
    _check_identity(first, answer)


def _check_identity(asked: Node, answer: InstanceAnswer | None) -> None:
    if isinstance(answer, Instance) and answer.provider_id != asked.spec.provider_id:
        raise Violated(f"asked for {asked.spec.provider_id}, describe answered {_said(answer)}")


@rule(machine_found)
async def owns(site: Site) -> None:
    """`owns` is YES for the provider's own ids, NO for others, and not YES without an id.

    Compare `node.spec.provider_id` with the form of your ids; without one, answer UNKNOWN. Nodes
    are deleted only where `owns` says YES.
    """
    started = await site.start()
    (mine,) = await site.nodes(started, 1)
    foreign = node("foreign", "another-cloud://region/i-0123456789abcdef0")
    answers = [started.instances.owns(one) for one in (mine, foreign, node("unknown"))]
    if answers[0] is not Ownership.YES:
        raise Violated(f"owns answered {answers[0]} for its own machine {mine.spec.provider_id}")
    if answers[1] is not Ownership.NO:
        raise Violated(
            f"owns answered {answers[1]} for {foreign.spec.provider_id}, which is not its own"
        )
    if answers[2] is Ownership.YES:
        raise Violated("owns answered YES for a Node without a provider id")


@rule(owns)
async def unreadable_id(site: Site) -> None:
    """A provider id that names no machine is an error, never a reason to look a name up.

    Take a provider id apart with one strict function (`parse` of `per_node`). Where it cannot,
    answer `InvalidRequest`, and let `owns` not say YES. Look a Node up by its name only where
    `node.spec.provider_id` is empty: an id such as "cloud://" is not.
    """
    started = await site.start()
    (mine,) = await site.nodes(started, 1)
    for id_ in cut_off(mine.spec.provider_id):
        for name in (mine.metadata.name, f"never-{uuid.uuid4().hex[:8]}"):
            asked = node(name, id_)
            found = await outcome(describe(started, [asked]))
            answer = None if isinstance(found, Exception) else found.get(name)
            if isinstance(answer, NotFound | Instance):
                raise Violated(f"for the provider id {id_!r}, describe answered {_said(answer)}")
        if started.instances.owns(asked) is Ownership.YES:
            raise Violated(f"for the provider id {id_!r}, owns is {Ownership.YES}")


@rule(owns)
async def foreign_nodes(site: Site) -> None:
    """A Node of another cloud is never NotFound, and the other nodes are answered.

    For a provider id that is not of this cloud's form, answer `InvalidRequest` or leave the Node
    out of the answer; do not send it to the cloud.
    """
    started = await site.start()
    nodes = await site.nodes(started, 2)
    foreign = node("foreign", "another-cloud://region/i-0123456789abcdef0")
    answers = await site.describe(started, [nodes[0], foreign, nodes[1]])
    answer = answers.get("foreign")
    if isinstance(answer, NotFound | Instance):
        raise Violated(f"for {foreign.spec.provider_id} describe answered {_said(answer)}")
    for one in nodes:
        instance(one.metadata.name, answers)


@rule(machine_found, wants=("stop_machine",))
async def stopped(site: Site) -> None:
    """A machine that was shut down is found, as STOPPED.

    Set `Instance.state`; only STOPPED sets the shutdown taint, which lets volumes move on.
    """
    started = await site.start()
    (one,) = await site.nodes(started, 1)
    await site.cloud.stop_machine(one.metadata.name)
    for asked in (one, node(one.metadata.name)):
        found = instance(one.metadata.name, await describe(started, [asked]))
        if found.state is not InstanceState.STOPPED:
            raise Violated(f"its state is {found.state}")


@rule(machine_found, wants=("stop_machine",))
async def powered_off(site: Site) -> None:
    """`powered_off` is said of STOPPED machines only, and never of one that runs.

    Set `Instance.powered_off` only where the cloud itself shows a machine without power: with
    `--node-out-of-service-taint` its volumes move on at once. Leave it out where you cannot tell.
    """
    started = await site.start()
    (one,) = await site.nodes(started, 1)
    name = one.metadata.name
    running = instance(name, await describe(started, [one]))
    await site.cloud.stop_machine(name)
    for found in (running, instance(name, await describe(started, [one]))):
        if found.powered_off and (found is running or found.state is not InstanceState.STOPPED):
            raise Violated(f"powered_off is True, and its state is {found.state}")


@rule(machine_found)
async def batch_asked_only(site: Site) -> None:
    """`describe` answers for the nodes asked about, and for no others.

    Make the answer by going through the nodes given, not through what the cloud listed.
    """
    started = await site.start()
    nodes = await site.nodes(started, 4)
    for asked in (nodes[1:3], [node(one.metadata.name) for one in nodes[1:3]]):
        batch = asked[: started.instances.batch_size]
        extra = (await describe(started, batch)).keys() - {one.metadata.name for one in batch}
        if extra:
            raise Violated(f"asked about {len(batch)} nodes, it also answered for {sorted(extra)}")


@rule(machine_found)
async def batch_full(site: Site) -> None:
    """`describe` answers a full batch of `batch_size` nodes.

    Set `batch_size` to the most that one `describe` can take; it is at least 1. If the cloud
    shows its machines in pages, read them all.
    """
    started = await site.start()
    size = started.instances.batch_size
    if not isinstance(size, int) or size < 1:
        raise Violated(f"batch_size is {size!r}")
    # Pages are a rule of their own.
    nodes = await site.nodes(started, min(size, site.cloud.page_size or _LARGEST_BATCH))
    answers = await describe(started, nodes)
    for one in nodes:
        instance(one.metadata.name, answers)


@rule(machine_found, wants=("batches",))
async def malformed_id(site: Site) -> None:
    """A malformed provider id fails for its own node only.

    Check the form of ids before you send them, or raise a `CloudError` for the whole batch: the
    framework then asks for halves until the bad id stands alone.
    """
    started = await site.start()
    if started.instances.batch_size < 2:  # noqa: PLR2004 - a batch of one has nobody else
        raise NotOffered(DECLARED["batches"], "batches")
    good, other = await site.nodes(started, 2)
    stem = other.spec.provider_id.rpartition("/")[0]
    bad = node(other.metadata.name, f"{stem}/%00 not an id!?#")
    found = await outcome(describe(started, [bad, good]))
    if isinstance(found, Exception):
        # The framework halves such a batch.
        found = await outcome(describe(started, [good]))
    if isinstance(found, Exception):
        raise Violated(f"asked about a valid id alone, describe raised {shown(found)}")
    instance(good.metadata.name, found)
    _check_identity(bad, found.get(bad.metadata.name))


@rule(batch_full, wants=("page_size",))
async def pages_of_machines(site: Site) -> None:
    """Machines beyond the cloud's first page are found.

    Read lists page by page until the cloud says that there is no further page.
    """
    started = await site.start()
    nodes = await site.nodes(started, 2 * site.page_size + 1)
    answers = await site.describe(started, nodes)
    for one in nodes:
        instance(one.metadata.name, answers)


def _said(answer: InstanceAnswer | None) -> str:
    return "nothing" if answer is None else shown(answer)


RULES = (
    capabilities,
    lacks_true,
    machine_found,
    provider_id,
    addresses,
    absence_said,
    identity,
    owns,
    unreadable_id,
    foreign_nodes,
    stopped,
    powered_off,
    batch_asked_only,
    batch_full,
    malformed_id,
    pages_of_machines,
)
