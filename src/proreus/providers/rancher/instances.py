"""Describe hosts of Rancher: all in one request, with their addresses."""

from collections.abc import Collection, Mapping, Sequence

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import attempt, each, foreign_id
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, has_taint
from proreus.providers.rancher.api import Api, Described
from proreus.providers.rancher.machines import (
    addresses,
    instance,
    is_going,
    joined,
    may_run,
    merged,
)
from proreus.providers.rancher.names import (
    SCHEME,
    Host,
    Index,
    index,
    named,
    ownership,
    parsed,
    uuid_of,
)

BATCH = 500
"""Nodes in one `describe`: each costs the same list of all hosts."""
_AT_ONCE = 4
_HOST_NAME = "Hostname"

Alone = Mapping[str, Described | CloudError | None]
"""Hosts that the list left out, asked for alone by their uuids; None for those that are gone."""
_Matches = Mapping[str, Host | NotFound | CloudError]
"""The host of each node by the node's name, or why it has none."""


class Hosts:
    """A reader of hosts."""

    def __init__(self, api: Api) -> None:
        """Keep the client of Rancher."""
        self._api = api
        self._seen: dict[str, Host] = {}

    async def all(self) -> list[Described]:
        """Return all hosts of the environment that are not removed, with their addresses.

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        return merged(await self._api.listed("hosts", include="ipAddresses"))

    async def by_uuid(self, uuids: Collection[str]) -> dict[str, Described | None]:
        """Return hosts by their uuids; None for those that are not in a list of all.

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        known = {uuid_of(host): host for host in await self.all()}
        return {uuid: known.get(uuid) for uuid in uuids}

    async def alone(self, uuids: Collection[str]) -> Alone:
        """Ask for each of these hosts alone, since a list in pages may have passed one over."""
        return await each(sorted(uuids), lambda one: one, self._one, _AT_ONCE)

    async def with_addresses(self, host: Host) -> Host:
        """Return a host with its addresses, which are read if the list of hosts left them out.

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        if joined(host) is not None or host.get("agentIpAddress"):
            return host
        found = await self._api.listed(f"hosts/{host.get('id')}/ipaddresses")
        return {**host, "ipAddresses": found}

    def remembers(self, hosts: Sequence[Host]) -> bool:
        """Tell whether `with_all_addresses` would not read the addresses of all hosts now."""
        return any(str(host.get("id")) in self._seen for host in hosts)

    async def with_all_addresses(
        self, hosts: Sequence[Host], *, anew: bool = False
    ) -> Sequence[Host]:
        """Return hosts with their addresses, as `with_addresses` does with one.

        Those that had to be read host by host are kept, and read once more if `anew` says so: a
        machine that is added again is a new host, but may get another address later.

        Raises:
            CloudError: The addresses of a host could not be read.
        """
        ids = {str(host.get("id")): host for host in hosts}
        kept = {} if anew else {id_: one for id_, one in self._seen.items() if id_ in ids}
        new = ids.keys() - kept.keys()
        read = await each(new, str, lambda id_: self.with_addresses(ids[id_]), _AT_ONCE)
        found = {id_: one for id_, one in read.items() if not isinstance(one, CloudError)}
        kept |= {id_: one for id_, one in found.items() if joined(one) and one is not ids[id_]}
        self._seen = kept
        if failed := [one for one in read.values() if isinstance(one, CloudError)]:
            raise failed[0]
        return [
            {**host, "ipAddresses": joined(kept[id_])} if id_ in kept else found[id_]
            for id_, host in ids.items()
        ]

    async def _one(self, uuid: str) -> Described | None:
        found = merged(await self._api.listed("hosts", uuid=uuid, include="ipAddresses"))
        return next((host for host in found if uuid_of(host) == uuid), None)


class RancherInstances:
    """The capability `Instances` of the provider `rancher`."""

    def __init__(self, hosts: Hosts) -> None:
        """Keep the reader of hosts."""
        self._hosts = hosts

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud, by its provider id."""
        return ownership(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up in a list of all hosts; ask for those that are missing alone."""
        asked = [node for node in nodes if ownership(node) is not Ownership.NO]
        hosts = await self._hosts.all() if asked else []
        ids = (parsed(node.spec.provider_id) for node in asked if node.spec.provider_id)
        uuids = {one for one in ids if one}
        known = index(hosts)
        alone = await self._hosts.alone(uuids - known.by_uuid.keys())
        there: dict[str, Host | CloudError | None] = {**known.by_uuid, **alone}
        by_name = [one for one in nodes if _is_settled(one) and not one.spec.provider_id]
        is_lost = any(_is_lost(there[uuid]) for uuid in uuids)
        if is_lost or not all(named(one.metadata.name, known) for one in by_name):
            found = await self._with_addresses(nodes, hosts, alone)
        else:
            found = _matches(nodes, known, alone)
        return await each(nodes, lambda node: node.metadata.name, _Answer(self._hosts, found), 1)

    async def _with_addresses(
        self, nodes: Sequence[Node], hosts: Sequence[Host], alone: Alone
    ) -> _Matches:
        """Match nodes of which some have lost their hosts, by all hosts with their addresses.

        The machine of a host that is gone is known by its address if it was added again. Addresses
        that were read before may keep a Node; that nothing keeps it, only new ones show.
        """
        found: _Matches = {}
        for anew in (False, True) if self._hosts.remembers(hosts) else (True,):
            whole = await attempt(self._hosts.with_all_addresses, hosts, anew=anew)
            if isinstance(whole, CloudError):
                alone = {uuid: whole if one is None else one for uuid, one in alone.items()}
                whole = hosts
            found = _matches(nodes, index(whole), alone)
            lost = (node for node in nodes if _is_lost(found[node.metadata.name]))
            if not any(node.spec.provider_id or _is_settled(node) for node in lost):
                break
        return found


class _Answer:
    """A function from a node to its answer, which may have to ask for addresses."""

    def __init__(self, hosts: Hosts, found: _Matches) -> None:
        self._hosts = hosts
        self._found = found

    async def __call__(self, node: Node) -> InstanceAnswer:
        host = self._found[node.metadata.name]
        if isinstance(host, NotFound | CloudError):
            return host
        return instance(await self._hosts.with_addresses(host), known_as=node.spec.provider_id)


def _matches(nodes: Sequence[Node], hosts: Index, alone: Alone) -> _Matches:
    return {node.metadata.name: match(node, hosts, alone) for node in nodes}


def match(node: Node, hosts: Index, alone: Alone) -> Host | NotFound | CloudError:
    """Return the answer about one node from what was looked up. Pure.

    A machine that was removed and added again is another host to Rancher, with another uuid, also
    while the former one is still being removed. So a host is not gone while there is another one of
    the Node's name or address: it may be the same machine.
    """
    text = node.spec.provider_id
    if text:
        uuid = parsed(text)
        if uuid is None:
            example = f"{SCHEME}2e8c1f0a-0000-4000-8000-000000000000, with the host's uuid"
            return InvalidRequest(foreign_id(text, "Rancher", example))
        answer = hosts.by_uuid[uuid] if uuid in hosts.by_uuid else alone[uuid]
        if answer is not None and not _is_lost(answer):
            return answer
        absence = _absence(node, uuid, hosts)
        return answer if answer is not None and isinstance(absence, NotFound) else absence
    alike = named(node.metadata.name, hosts)
    if len(alike) > 1:
        ids = _ids(alike)
        return IdentityConflict(
            f"{len(alike)} hosts are called {node.metadata.name}: {ids}; rename all but one"
        )
    if alike or not _is_settled(node):
        return alike[0] if alike else NotFound()
    return _absence(node, "", hosts)


def _is_settled(node: Node) -> bool:
    """Tell whether a Node is initialised; one that is not may have no host yet."""
    return not has_taint(node, TAINT_UNINITIALIZED)


def _is_lost(found: Host | NotFound | CloudError | None) -> bool:
    """Tell whether there is no such host, or it is being removed."""
    if isinstance(found, CloudError):
        return False
    return found is None or isinstance(found, NotFound) or is_going(found)


def _absence(node: Node, uuid: str, hosts: Index) -> NotFound | CloudError:
    """Return the answer about a host that Rancher does not have, or is removing.

    It was looked for by its `uuid`, or if that is "" by the Node's name.

    The machine may have been added again, under another name, too, such as after its domain was
    changed: so no other host may have the Node's name, or an address of it. Hosts of an environment
    reach one another, and none has the address of another. One that shows no address may have any.
    Nor may the only host be there that has the name of the former one, which the Node has kept.
    """
    gone = f"the host {uuid} has been removed" if uuid else "no host has the Node's name"
    own = {one.address for one in node.status.addresses if one.type != _HOST_NAME}
    names = [one.address for one in node.status.addresses if one.type == _HOST_NAME]
    there = [host for host in hosts.by_uuid.values() if not is_going(host)]
    found = {str(host.get("id")): {one.address for one in addresses(host)} for host in there}
    known = index(there)
    same = [alone for name in names if len(alone := named(name, known)) == 1]
    alike = {str(one.get("id")) for of in (named(node.metadata.name, known), *same) for one in of}
    alike |= {id_ for id_, known in found.items() if not own.isdisjoint(known)}
    if alike:
        return IdentityConflict(
            f"{gone}, but {', '.join(sorted(alike))} has a name or an address of the Node"
            f" {node.metadata.name}: delete the Node object; if that is the same machine, its"
            " kubelet makes it anew"
        )
    silent = sorted(
        id_ for host in there if may_run(host) and not found[id_ := str(host.get("id"))]
    )
    if silent:
        return CloudError(
            f"{gone}, but {', '.join(silent)} shows no IP address, and may be the machine of the"
            f" Node {node.metadata.name} that is added again; remove that host, or delete the Node"
            " object if its machine is gone"
        )
    return NotFound()


def _ids(hosts: Sequence[Host]) -> str:
    return ", ".join(sorted(str(host.get("id")) for host in hosts))
