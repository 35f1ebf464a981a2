"""Describe machines of BCC: a hundred in one request by their ids, or all by names.

What BCC does not know may be a machine of BBC, bare metal, whose ids look alike.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest, Throttled
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import ask_all, each, in_parts
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import Node
from proreus.providers.baidu.api import Api, Call, Described
from proreus.providers.baidu.machines import DELETED, LABEL_BARE_METAL, bare_metal, instance
from proreus.providers.baidu.names import Target, ownership, target

BATCH: Final = 500
"""Nodes in one `describe`."""
IDS: Final = 100
"""Ids or addresses that one request takes."""
_AT_ONCE: Final = 4


class Found(msgspec.Struct, frozen=True):
    """The answers to a batch of look-ups; a part that failed is its error.

    Attributes:
        by_id: Machines by id; None for absent ones, an error where a machine's own look-up failed.
        by_name: Machines by host name in small letters; a name without a machine is left out.
        by_address: Machines by private address; an address without a machine is left out.
    """

    by_id: Mapping[str, Described | CloudError | None] | CloudError
    by_name: Mapping[str, Sequence[Described]] | CloudError
    by_address: Mapping[str, Sequence[Described]] | CloudError


class Machines:
    """A reader of machines."""

    def __init__(self, api: Api, vpc: str, *, bare_metal: bool) -> None:
        """Keep the client of the cloud, the VPC of the nodes or "", and whether BBC is asked."""
        self._api = api
        self._vpc = vpc
        self._bare_metal = bare_metal
        self._has_bbc = False

    async def by_id(self, ids: Collection[str]) -> dict[str, Described | CloudError | None]:
        """Return machines by their ids; None for those that the cloud says are not there.

        A list leaves out what is not there, so each of these is asked for alone: only what the
        cloud says of that very machine proves its absence.

        Raises:
            CloudError: A list could not be read.
        """
        parts = in_parts(ids, IDS)
        lists = await asyncio.gather(*(self._list(instanceIds=",".join(part)) for part in parts))
        found: dict[str, Described | CloudError | None] = {
            str(one["id"]): one for listed in lists for one in listed if one.get("id") in ids
        }
        missing = [id_ for id_ in ids if id_ not in found]
        return found | await each(missing, str, self._alone, _AT_ONCE)

    async def by_name(self, names: Collection[str]) -> dict[str, list[Described]]:
        """Return all machines by their host names in small letters, if any names are wanted.

        Raises:
            CloudError: The list could not be read.
        """
        found = await self.all() if names else []
        return _grouped(await self._with_bare(found, names, "hostname"), "hostname")

    async def by_address(self, addresses: Collection[str]) -> dict[str, list[Described]]:
        """Return machines by private addresses: of the VPC, or of all VPCs if none is configured.

        Raises:
            CloudError: A list could not be read.
        """
        found = await self._at(addresses)
        return _grouped(await self._with_bare(found, addresses, "internalIp"), "internalIp")

    async def _at(self, addresses: Collection[str]) -> list[Described]:
        if not self._vpc:
            return await self.all() if addresses else []
        lists = await asyncio.gather(
            *(
                self._list(vpcId=self._vpc, privateIps=",".join(part))
                for part in in_parts(addresses, IDS)
            )
        )
        return [one for listed in lists for one in listed]

    async def all(self) -> list[Described]:
        """Return all machines of the region, or of the VPC that the cloud-config names."""
        listed = await self._list()
        return [one for one in listed if not self._vpc or one.get("vpcId") == self._vpc]

    async def _list(self, **query: str) -> list[Described]:
        return await self._api.listed("listInstances", "instances", **query)

    async def _with_bare(
        self, found: list[Described], wanted: Collection[str], field: str
    ) -> list[Described]:
        """Add the machines of BBC: of one name with one of BCC, either may be meant.

        Where BBC has never answered, as in a region without it, what BCC has is enough. A failure
        that it tells itself is an answer, too: there it is.

        Raises:
            CloudError: BBC does not answer, and did before, or BCC lacks one that is wanted.
        """
        if not (wanted and self._bare_metal):
            return found
        query = {"vpcId": self._vpc} if self._vpc else {}
        try:
            listed = await self._api.listed("listBareMetals", "instances", **query)
        except CloudError as error:
            self._has_bbc = self._has_bbc or _is_there(error)
            if self._has_bbc or not _grouped(found, field).keys() >= set(wanted):
                raise
            return found
        self._has_bbc = True
        return [*found, *map(bare_metal, listed)]

    async def _alone(self, id_: str) -> Described | None:
        answer = await self._api.find(Call("getInstance", (id_,)))
        if answer is None:
            return await self._bare_alone(id_) if self._bare_metal else None
        found = answer.get("instance")
        if not isinstance(found, dict) or found.get("id") != id_:
            raise CloudError(f"baidu.getInstance: the answer is not about {id_}")
        return found

    async def _bare_alone(self, id_: str) -> Described | None:
        answer = await self._api.find(Call("getBareMetal", (id_,)))
        if answer is None:
            return None
        if answer.get("id") != id_:
            raise CloudError(f"baidu.getBareMetal: the answer is not about {id_}")
        return bare_metal(answer)


class BaiduInstances:
    """The capability `Instances` of the provider `baidu`."""

    def __init__(self, machines: Machines, *, region: str) -> None:
        """Keep the reader of machines, and the region of the cloud-config."""
        self._machines = machines
        self._region = region

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud and region: by its provider id, and its label."""
        return ownership(node, self._region)

    def scope(self, node: Node) -> str:
        """Return a scope of its own for bare metal, of which another API tells: BBC's."""
        return "BBC" if LABEL_BARE_METAL in node.metadata.labels else ""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up by provider id, or else by host name or private address."""
        targets = {node.metadata.name: target(node) for node in nodes}
        ids = {one.id for one in targets.values()} - {""}
        names = {one.name for one in targets.values()} - {""}
        addresses = {one.address for one in targets.values()} - {""}
        found = Found(
            *await ask_all(
                (ids, self._machines.by_id),
                (names, self._machines.by_name),
                (addresses, self._machines.by_address),
            )
        )
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            name = node.metadata.name
            machine = match(targets[name], found)
            answers[name] = (
                machine
                if isinstance(machine, NotFound | CloudError)
                else instance(machine, region=self._region, known_as=node.spec.provider_id)
            )
        return answers


def match(wanted: Target, found: Found) -> Described | NotFound | CloudError:
    """Return the answer about one node from what was looked up. Pure."""
    if wanted.problem:
        return InvalidRequest(wanted.problem)
    if wanted.id:
        return found.by_id if isinstance(found.by_id, CloudError) else _of_id(wanted, found.by_id)
    groups = found.by_address if wanted.address else found.by_name
    return groups if isinstance(groups, CloudError) else _of_group(wanted, groups)


def _of_id(
    wanted: Target, machines: Mapping[str, Described | CloudError | None]
) -> Described | NotFound | CloudError:
    machine = machines.get(
        wanted.id, CloudError(f"the cloud's answer says nothing of the machine {wanted.id}")
    )
    if machine is None:
        return NotFound()
    is_released = not isinstance(machine, CloudError) and machine.get("status") == DELETED
    return NotFound(tombstone=True) if is_released else machine


def _of_group(
    wanted: Target, groups: Mapping[str, Sequence[Described]]
) -> Described | NotFound | CloudError:
    called = wanted.address or wanted.name
    alike = [one for one in groups.get(called, ()) if one.get("status") != DELETED]
    if len(alike) > 1:
        ids = ", ".join(sorted(str(one["id"]) for one in alike))
        return IdentityConflict(
            f"{len(alike)} machines are called {called}: {ids}: give VpcId in the cloud-config"
        )
    return alike[0] if alike else NotFound()


def _is_there(error: CloudError) -> bool:
    """Tell whether an error shows that the service is there, and fails for now."""
    if isinstance(error, Throttled):
        return True
    if not isinstance(error, Refused) or not error.code:
        return False
    return error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _grouped(machines: Collection[Described], field: str) -> dict[str, list[Described]]:
    groups: dict[str, list[Described]] = {}
    for one in machines:
        if called := str(one.get(field) or "").lower():
            groups.setdefault(called, []).append(one)
    return groups
