"""Take the steps of a plan: each is one call, or waiting until the cloud is ready for one."""

import asyncio
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Final

from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import Recent
from proreus.cloudprovider.refused import Reason, Refused
from proreus.cloudprovider.waits import Waits, Working
from proreus.providers.baidu.api import Api, Call, Described
from proreus.providers.baidu.balancing.parts import Observed
from proreus.providers.baidu.balancing.reading import Made, missing
from proreus.providers.baidu.balancing.steps import Step, Wait
from proreus.providers.baidu.operations import OPERATIONS

PACE: Final = tuple(min(0.5 * 1.6**times, 15.0) for times in range(9))
"""Seconds until the cloud is asked again whether it is done."""
SHOWN_WITHIN: Final = 120.0
"""Seconds within which a list must show what was made; later it counts as gone."""

_GONE: Final = frozenset({"deleteLoadBalancer", "releaseEip"})
_BUSY: Final = frozenset({Reason.CONFLICT, Reason.PRECONDITION_FAILED})


class Work:
    """The work on load balancers, for one Service at a time, and what lists do not show yet.

    Attributes:
        waits: The counts of answers `Pending`, by Service.
    """

    def __init__(self, api: Api, hosts: Recent[Described | CloudError | None]) -> None:
        """Keep the API client and the cache of hosts; begin without any work."""
        self._api = api
        self._hosts = hosts
        self._made: dict[str, tuple[float, Made]] = {}
        self.waits = Waits(PACE)
        self._turns: dict[str, asyncio.Lock] = {}

    def made(self, uid: str) -> Made:
        """Return what was made for a Service a moment ago."""
        until, made = self._made.get(uid, (0.0, Made()))
        if asyncio.get_running_loop().time() > until:
            self._made.pop(uid, None)
            return Made()
        return made

    def check_shown(self, uid: str, observed: Observed) -> None:
        """Wait until lists show what was made.

        Raises:
            Working: The lists do not show it yet.
        """
        if lacking := missing(self.made(uid), observed):
            raise Working(f"the {lacking} is not listed yet")
        if any(one.is_tagged for one in observed.eips):
            # One whose purchase had no answer may be among them.
            self._api.forget("createEip", uid)

    async def take(
        self, uid: str, observed: Observed, step: Step, *, bare: Collection[str] = ()
    ) -> Callable[[Observed], Observed]:
        """Take a step; return a function from the state observed before it to the state after it.

        Args:
            uid: The UID of the Service.
            observed: The state observed before the step.
            step: The step.
            bare: The machines that the cloud may refuse as back ends, each by itself.

        Raises:
            Working: The step's effect takes a while, or the cloud is busy with another change.
            CloudError: The cloud refuses, or does not answer.
        """
        call = step.call
        if isinstance(call, Wait):
            raise Working(call.reason)
        # Changes of one load balancer are not made side by side: the cloud refuses some of them.
        async with self._turns.setdefault(uid, asyncio.Lock()):
            if call.operation == "unbindEip":
                await self._check_holder(call.ids[0], observed)
            try:
                await self.send(uid, call)
            except Refused as error:
                added = _added(call)
                if not added or not added.issubset(bare) or not _is_final(error):
                    raise
                text = f"it cannot be a back end: {error}"
                return lambda now: replace(
                    now, refused={**now.refused, **dict.fromkeys(added, text)}
                )
        if OPERATIONS[call.operation].settles:
            raise Working(f"the cloud works on {call.operation}")
        return step.after

    async def _check_holder(self, ip: str, observed: Observed) -> None:
        """Look once more at what has an address: whatever that is, the cloud unbinds it.

        Raises:
            Working: Somebody has bound it to something else since it was observed.
            CloudError: The cloud does not answer.
        """
        before = observed.eip(ip)
        for one in await self._api.listed("listEips", "eipList", eip=ip):
            holder = str(one.get("instanceId") or "")
            if before is not None and holder not in {before.holder, ""}:
                raise Working(f"somebody else has bound {ip}: it is looked up once more")

    async def send(self, uid: str, call: Call) -> None:
        """Make a call for a Service; to delete a part that is gone already is no error.

        Raises:
            Working: The cloud is busy with another change.
            CloudError: The cloud refuses, or does not answer.
        """
        try:
            if call.operation in _GONE:
                await self._api.find(call)
                self._forget(uid, call.ids[0])
                return
            answer = await self._api.send(call)
        except Refused as error:
            if call.operation == "addBackendServers":
                self._hosts.forget()
            if error.reason in _BUSY:
                raise Working(f"the cloud is busy: {error}") from error
            raise
        made = self.made(uid)
        if call.operation == "createLoadBalancer":
            made.balancer = _named(call, answer.get("blbId"))
        elif call.operation == "createEip":
            made.eips |= {_named(call, answer.get("eip"))}
        else:
            return
        self._made[uid] = asyncio.get_running_loop().time() + SHOWN_WITHIN, made

    def _forget(self, uid: str, gone: str) -> None:
        """Forget a part that was made and is gone: the cloud may give an address to others."""
        made = self.made(uid)
        made.eips -= {gone}
        made.balancer = "" if made.balancer == gone else made.balancer

    def done(self, uid: str) -> None:
        """Forget all about a Service that is as desired, or deleted."""
        self._made.pop(uid, None)
        self._turns.pop(uid, None)
        self.waits.done(uid)


def _added(call: Call) -> set[str]:
    """Return the machines that a call adds as back ends."""
    if call.operation != "addBackendServers" or call.body is None:
        return set()
    return {str(one["instanceId"]) for one in call.body["backendServerList"]}


def _is_final(error: Refused) -> bool:
    """Tell whether the cloud will say the same once more."""
    return error.status < HTTPStatus.INTERNAL_SERVER_ERROR


def _named(call: Call, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise CloudError(f"baidu.{call.operation}: the answer does not name what was made")
    return value
