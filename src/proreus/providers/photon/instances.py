"""Describe virtual machines of Photon Controller."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import each
from proreus.kube.objects import Node
from proreus.providers.photon.api import Api
from proreus.providers.photon.documents import Vm
from proreus.providers.photon.names import Target, ownership, target
from proreus.providers.photon.networks import AddressBook
from proreus.providers.photon.plan import ABSENT_AGE, EMPTY_AGE, Shown, instance, match

BATCH: Final = 1000
"""Nodes in one `describe`: ten pages of a list."""
PAGE: Final = 100
"""Machines in a page of Photon Controller, by default and at most."""
CONCURRENCY: Final = 8
"""Machines that are asked about by themselves at once."""


class PhotonInstances:
    """The capability `Instances` of the provider `photon`."""

    def __init__(self, api: Api, book: AddressBook, *, override_ip: bool) -> None:
        """Keep the API client and the address book.

        Args:
            api: The client of Photon Controller.
            book: The book that keeps addresses.
            override_ip: Whether Nodes are called by IP addresses.
        """
        self._api = api
        self._book = book
        self._override_ip = override_ip
        self._pages = 1

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud, by its provider id, which names no project."""
        return ownership(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: in a list of the project, or each by itself if those are fewer calls.

        Raises:
            CloudError: No machine could be looked up.
        """
        targets = {
            node.metadata.name: target(node, override_ip=self._override_ip) for node in nodes
        }
        shown = await self._shown(targets.values())
        networks = await self._book.of(shown.all)
        found = {name: match(of, shown, networks) for name, of in targets.items()}
        # Another machine may have got an address since it was read of this one.
        claimed = [vm for name, vm in found.items() if targets[name].address and isinstance(vm, Vm)]
        networks = {**networks, **await self._book.of(claimed, age=EMPTY_AGE)}
        if claimed:
            found |= {name: match(of, shown, networks) for name, of in targets.items()}
        # Nor does what was read a while ago say that no machine has an address: leases change.
        sought = {
            name: of
            for name, of in targets.items()
            if is_address(of.address) and isinstance(found[name], NotFound)
        }
        if sought:
            fresh = await self._book.of(shown.all, age=ABSENT_AGE)
            found |= {name: match(of, shown, fresh) for name, of in sought.items()}
            read = {id_: one for id_, one in fresh.items() if not isinstance(one, CloudError)}
            networks = {**networks, **read}
        # Those that are in no list of the project were looked up by their ids, or by names.
        others = {vm.id: vm for vm in found.values() if isinstance(vm, Vm)}
        missing = [vm for id_, vm in others.items() if id_ not in networks]
        networks = {**networks, **await self._book.of(missing)}
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            vm = found[node.metadata.name]
            answers[node.metadata.name] = (
                vm if isinstance(vm, NotFound | CloudError) else instance(node, vm, networks[vm.id])
            )
        return answers

    async def _shown(self, targets: Collection[Target]) -> Shown:
        ids = {one.id for one in targets} - {""}
        names = {one.name for one in targets} - {""}
        by_address = any(one.address for one in targets)
        if not by_address and len(ids) + len(names) <= self._pages:
            by_id = await each(ids, str, self._api.machine, CONCURRENCY)
            by_name = await each(names, str, self._api.machines, CONCURRENCY)
            failed = [
                one for one in (*by_id.values(), *by_name.values()) if isinstance(one, CloudError)
            ]
            if failed and len(failed) == len(ids) + len(names):
                raise failed[0]
            return Shown(by_id, by_name)
        return await self._listed(ids, names, by_address=by_address)

    async def _listed(
        self, ids: Collection[str], names: Collection[str], *, by_address: bool
    ) -> Shown:
        """Read the whole project; a machine that the list lacks is asked about by itself."""
        machines = await self._api.machines()
        self._pages = max(1, -(-len(machines) // PAGE))
        self._book.keep_only([vm.id for vm in machines])
        by_id: dict[str, Vm | CloudError | None] = {vm.id: vm for vm in machines if vm.id in ids}
        by_id |= await each(set(ids) - by_id.keys(), str, self._api.machine, CONCURRENCY)
        by_name: dict[str, list[Vm]] = {name: [] for name in names}
        for vm in machines:
            if vm.name in by_name:
                by_name[vm.name].append(vm)
        return Shown(by_id, by_name, tuple(machines) if by_address else ())
