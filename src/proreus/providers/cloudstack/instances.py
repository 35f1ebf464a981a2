"""Describe virtual machines of CloudStack: many in one request, by their ids or by name."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import (
    all_but_refused,
    ask_all,
    attempt,
    found_by_id,
    runs_elsewhere,
)
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import Node
from proreus.providers.cloudstack.api import Api, Described
from proreus.providers.cloudstack.errors import absent_id
from proreus.providers.cloudstack.machines import DETAILS, id_of, instance, misplaced
from proreus.providers.cloudstack.names import Target, keys_of, ownership, target

BATCH = 500
"""Nodes in one `describe`: as many as CloudStack shows at once unless it is set up otherwise."""


class Found(msgspec.Struct, frozen=True):
    """The answers to a batch of look-ups; a part that failed is its error.

    Attributes:
        by_id: Machines by id; None for absent ones, an error for those of another project.
        by_name: Machines by name in small letters; a name without a machine is left out.
        of_kubelets: Machines by the UUIDs that kubelets report, where one of these counts.
    """

    by_id: Mapping[str, Described | CloudError | None] | CloudError
    by_name: Mapping[str, Sequence[Described]] | CloudError
    of_kubelets: Mapping[str, Described | CloudError | None] | CloudError = {}


class Machines:
    """A reader of virtual machines."""

    def __init__(self, api: Api) -> None:
        """Keep the client of CloudStack."""
        self._api = api

    async def by_id(self, ids: Collection[str]) -> dict[str, Described | None]:
        """Return machines by their ids; None for those that CloudStack does not show here.

        CloudStack refuses a request for an id that it has never known, and names it; one that is
        gone, or is in another project, it leaves out.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        return (await self._read(ids))[0]

    async def anywhere(self, ids: Collection[str]) -> dict[str, Described | CloudError | None]:
        """Return machines by their ids, None for those that are gone.

        Those that are not where the cloud-config says are looked for in the account and all
        projects that the key reaches, by one more request: one that is there is an error.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        here, never = await self._read(ids)
        missing = [id_ for id_, one in here.items() if one is None and id_ not in never]
        found = (await self._read(missing, everywhere=True))[0] if missing else {}
        return {
            **here,
            **{id_: one and in_place(one, self._api.project) for id_, one in found.items()},
        }

    async def _read(
        self, ids: Collection[str], *, everywhere: bool = False
    ) -> tuple[dict[str, Described | None], Collection[str]]:
        """Return what a list of these ids shows, and which of them CloudStack has never known."""
        found: dict[str, Described | None] = dict.fromkeys(ids)

        async def read(left: list[str]) -> None:
            asked = {"ids": ",".join(left), "details": DETAILS}
            listed = await self._api.listed(
                "listVirtualMachines", "virtualmachine", asked, everywhere=everywhere
            )
            found.update({id_of(one): one for one in listed if id_of(one) in found})

        return found, await all_but_refused(read, sorted(ids), _absent)

    async def all(self) -> list[Described]:
        """Return all machines of the account or project.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        asked = {"details": DETAILS}
        return await self._api.listed("listVirtualMachines", "virtualmachine", asked)

    async def by_name(self, names: Collection[str]) -> dict[str, list[Described]]:
        """Return all machines by their names in small letters, if any names are wanted.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        found: dict[str, list[Described]] = {}
        for one in await self.all() if names else ():
            found.setdefault(str(one.get("name", "")).lower(), []).append(one)
        return found


def _absent(error: Refused) -> tuple[str, ...]:
    """Return the id that a refusal is about, if it says that there is no such machine."""
    return (absent_id(error.text),) if error.is_absence else ()


class CloudStackInstances:
    """The capability `Instances` of the provider `cloudstack`."""

    def __init__(self, machines: Machines, *, region: str, dual_stack: bool) -> None:
        """Keep the reader of machines.

        Args:
            machines: The reader of machines.
            region: The region of the cloud-config; "" for each machine's zone.
            dual_stack: Whether Nodes have addresses of both families.
        """
        self._machines = machines
        self._region = region
        self._dual_stack = dual_stack

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud, by its provider id."""
        return ownership(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: those with a provider id in one request, others in a list of all."""
        targets = {node.metadata.name: target(node) for node in nodes}
        ids = {one.id for one in targets.values()} - {""}
        names = {one.name for one in targets.values()} - {""}
        of_ids, of_names = await ask_all(
            (ids, self._machines.anywhere), (names, self._machines.by_name)
        )
        found = Found(of_ids, of_names)
        uuids = {uuid for one in targets.values() for uuid in doubtful(one, found)}
        others = await attempt(self._machines.anywhere, uuids) if uuids else {}
        found = Found(of_ids, of_names, others)
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            name = node.metadata.name
            machine = match(targets[name], found)
            answers[name] = (
                machine
                if isinstance(machine, NotFound | CloudError)
                else instance(
                    machine,
                    region=self._region,
                    known_as=node.spec.provider_id,
                    dual_stack=self._dual_stack,
                )
            )
        return answers


def in_place(machine: Described, project: str) -> Described | CloudError:
    """Return a machine if it is in the project of the cloud-config; else say where it is. Pure."""
    where = misplaced(machine, project)
    if not where:
        return machine
    return CloudError(
        f"the machine {id_of(machine)} {where}: correct project-id in [Global], or delete the Node"
        " if another cluster has its machine now"
    )


def doubtful(wanted: Target, found: Found) -> tuple[str, ...]:
    """Return the UUIDs to look up before a Node's machine is taken for gone, or its own. Pure.

    On KVM the UUID that a kubelet reports is its machine's id. With other hypervisors it is that of
    no machine at all, so it says something only where there is such a machine.
    """
    if wanted.id:
        is_gone = not isinstance(found.by_id, CloudError) and found.by_id[wanted.id] is None
        return wanted.uuids if is_gone and wanted.id not in wanted.uuids else ()
    if isinstance(found.by_name, CloudError):
        return ()
    ids = {id_of(one) for one in _named(wanted, found.by_name)}
    return wanted.uuids if ids.isdisjoint(wanted.uuids) else ()


def match(wanted: Target, found: Found) -> Described | NotFound | CloudError:
    """Return the answer about one node from what was looked up. Pure.

    A Node whose kubelet runs on another machine, such as one that has taken over the name of a
    former one, is not gone with that one. Nor is a machine the Node's by its name, nor one gone
    that the list of names lacks.
    """
    if wanted.problem:
        return InvalidRequest(wanted.problem)
    problem = runs_elsewhere(wanted.id, doubtful(wanted, found), found.of_kubelets)
    if problem is not None:
        return problem
    return found_by_id(wanted.id, found.by_id) if wanted.id else _by_name(wanted, found)


def _by_name(wanted: Target, found: Found) -> Described | NotFound | CloudError:
    if isinstance(found.by_name, CloudError):
        return found.by_name
    named = _named(wanted, found.by_name)
    alike = [one for one in named if id_of(one) in wanted.uuids] or named
    if len(alike) > 1:
        ids = ", ".join(sorted(map(id_of, alike)))
        return IdentityConflict(
            f"{len(alike)} machines are called {wanted.name}: {ids}; rename or delete all but one"
        )
    return alike[0] if alike else NotFound()


def _named(
    wanted: Target, by_name: Mapping[str, Sequence[Described]] | CloudError
) -> Sequence[Described]:
    """Return the machines of a Node's name; none if they are not known."""
    if isinstance(by_name, CloudError):
        return ()
    whole, short = keys_of(wanted.name)
    return by_name.get(whole) or by_name.get(short) or ()
