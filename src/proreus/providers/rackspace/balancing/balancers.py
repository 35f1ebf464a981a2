"""Read Cloud Load Balancers, and send the requests that change them."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused
from proreus.providers.rackspace.api import Api
from proreus.providers.rackspace.balancing import owners
from proreus.providers.rackspace.balancing.documents import (
    PARTS,
    Described,
    existing,
    marks_of,
    vips,
)
from proreus.providers.rackspace.balancing.parts import (
    FAILED,
    GOING,
    GONE,
    Existing,
    Key,
    Observed,
)
from proreus.providers.rackspace.balancing.steps import DELETE, NEW, Step
from proreus.providers.rackspace.errors import is_gone, is_immutable

PAGE: Final = 100
"""Load balancers in a page, the most that Rackspace shows."""
BUSY: Final = "PENDING_UPDATE"
"""The state of a load balancer that works on a change."""

_AT_ONCE: Final = 5
_METADATA: Final = "metadata"


class Balancers:
    """The Cloud Load Balancers of the account."""

    def __init__(self, api: Api) -> None:
        """Keep the client of Rackspace."""
        self._api = api
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._seen: set[str] = set()
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[Sequence[Described]] | None = None

    async def all(self) -> Sequence[Described]:
        """List all of the account, by id: their names, addresses and states.

        Whoever asks while a list is read waits for the next one, and shares it with the others: so
        many Services at once cost few lists, and none is older than its question.

        Raises:
            CloudError: A page could not be read.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn(), name="load balancers")
            self._next.add_done_callback(_noticed)
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> Sequence[Described]:
        async with self._turn:
            self._next = None  # for those who ask from now on
            return await self._list()

    async def _list(self) -> list[Described]:
        found: dict[int, Described] = {}

        async def page(marker: str) -> tuple[list[Described], str]:
            query = {"limit": str(PAGE), **({"marker": marker} if marker else {})}
            shown = await self._api.listed(
                "clb", "load_balancer_list", "loadbalancers", "loadBalancers", query
            )
            new = {int(one["id"]): one for one in shown if int(one["id"]) not in found}
            found.update(new)
            # The marker may be the first of the next page.
            return shown, str(max(new)) if new and len(shown) >= PAGE else ""

        await pages("clb.load_balancer_list", page)
        return [found[id_] for id_ in sorted(found)]

    async def of_service(
        self,
        ref: LoadBalancerRef,
        listed: Iterable[Described],
        parts: Mapping[Key, set[str]],
        made: Collection[int] = (),
    ) -> Observed:
        """Read the load balancers that belong to a Service, found by name or by its address.

        Args:
            ref: The Service.
            listed: All load balancers of the account.
            parts: The desired fields, by port: where a load balancer's details lack them, they are
                read as well.
            made: The ids of load balancers that were made for the Service a moment ago, and may not
                be listed yet.

        Raises:
            CloudError: Rackspace gives no usable answer, or lists a load balancer that it then does
                not find: it would be made once more, with another address.
        """
        shown = {point.ip for point in ref.last_ingress}
        named = [
            one
            for one in listed
            if str(one.get("name", "")).startswith(ref.name)
            or not shown.isdisjoint(vip.address for vip in vips(one))
        ]
        details = await self.sure_details(named, made)
        ours = [
            one
            for one in details.values()
            if one is not None
            and one.get("status") != GONE
            and owners.is_ours(marks_of(one), str(one.get("name", "")), ref)
        ]
        read = await asyncio.gather(*(self._complete(one, parts) for one in ours))
        return Observed(tuple(sorted(read, key=lambda one: one.id)))

    async def sure_details(
        self, listed: Iterable[Described], made: Collection[int]
    ) -> dict[int, Described | None]:
        """Read listed load balancers, and others that were made a moment ago, as `details` does.

        Raises:
            CloudError: Rackspace gives no usable answer, or does not find one that it lists, and
                not as being deleted: of that nobody knows whose it is.
        """
        states = {int(one["id"]): str(one.get("status", "")) for one in listed}
        there = {id_ for id_, status in states.items() if status not in {GOING, GONE}}
        found = await self.details({*states, *made})
        lost = [id_ for id_, one in found.items() if one is None and id_ in there]
        if lost:
            raise CloudError(f"Rackspace lists load balancer {lost[0]}, but does not find it")
        return found

    async def details(self, ids: Iterable[int]) -> dict[int, Described | None]:
        """Read load balancers by id; None for each that Rackspace does not find.

        Raises:
            CloudError: Rackspace gives no usable answer.
        """
        ordered = sorted(ids)
        found = await asyncio.gather(*(self._details(id_) for id_ in ordered))
        return dict(zip(ordered, found, strict=True))

    async def take(self, observed: Observed, step: Step) -> Callable[[Observed], Observed]:
        """Take a step; return a function from the state observed before it to the state after it.

        A load balancer that refuses since it works on something else is waited for.

        Raises:
            CloudError: Rackspace refuses, or does not answer.
        """
        call = step.call
        try:
            answer = await self._api.change(
                "clb", call.operation, call.method, call.path, call.body
            )
        except Refused as error:
            if call.balancer == NEW:
                raise
            status = {one.id: one.status for one in observed.existing}[call.balancer]
            if is_immutable(error) and status in FAILED:
                raise CloudError(f"{error}: only support can end its state, {status}") from error
            if is_immutable(error):
                return lambda now: _with_status(now, call.balancer, BUSY)
            if call.operation == DELETE and is_gone(error):
                return step.after
            raise
        if call.balancer == NEW:
            made = existing(answer["loadBalancer"])
            return lambda now: Observed((*now.existing, made))
        if call.operation.startswith("metadata"):
            return step.after  # which does not put it to work
        if call.operation == DELETE:
            return lambda now: _with_status(now, call.balancer, GOING)
        return lambda now: _with_status(step.after(now), call.balancer, BUSY)

    async def _details(self, id_: int) -> Described | None:
        """Read a load balancer, always with its metadata, which say whose it is."""
        async with self._slots:
            found = await self._api.find(
                "clb", "load_balancer_get", f"loadbalancers/{id_}", "loadBalancer"
            )
        if found is None or found.get("status") == GONE:
            return found
        self._seen |= found.keys()
        if _METADATA in found:
            return found
        return {**found, _METADATA: await self._part(id_, _METADATA)}

    async def _complete(self, described: Described, parts: Mapping[Key, set[str]]) -> Existing:
        """Read parts that the details lack, since the documents do not promise all of them there.

        Details that have shown a part once show it whenever it is set.
        """
        one = existing(described)
        lacking = parts.get(one.settings.key, set()) - self._seen - described.keys()
        asked = {field: await self._part(one.id, field) for field in sorted(lacking)}
        return existing({**described, **asked}) if asked else one

    async def _part(self, id_: int, field: str) -> object:
        word = PARTS[field]
        operation, path = f"{word}_get", f"loadbalancers/{id_}/{word}"
        async with self._slots:
            if field in {"accessList", _METADATA}:
                return await self._api.listed("clb", operation, path, field)
            return await self._api.get("clb", operation, path, field)


def _with_status(observed: Observed, id_: int, status: str) -> Observed:
    return Observed(
        tuple(replace(one, status=status) if one.id == id_ else one for one in observed.existing)
    )


def _noticed(task: "asyncio.Task[Sequence[Described]]") -> None:
    """Retrieve the error of a list for which nobody waits, so that Python does not complain."""
    if not task.cancelled():
        task.exception()
