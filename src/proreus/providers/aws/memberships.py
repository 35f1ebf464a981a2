"""Remember for a short while which security groups instances are in.

All load balancers have the same hosts, and each asks about all of them.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.lookups import in_parts
from proreus.providers.aws.identity import Described

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

KEPT: Final = 60.0
"""Seconds for which an answer serves: hardly anybody moves running instances to other groups."""
_MOST_VALUES: Final = 200
_FIELDS: Final = ("InstanceId", "SecurityGroups", "Tags")


class Memberships:
    """A cache of the security groups of instances."""

    def __init__(self, api: "Api") -> None:
        """Begin with an empty cache."""
        self._api = api
        self._known: dict[str, tuple[float, Described]] = {}
        self._turn = asyncio.Lock()

    async def of(self, instances: Iterable[str]) -> list[Described]:
        """Return id, security groups and tags of those instances that exist.

        Raises:
            CloudError: AWS does not answer.
        """
        sorted_ids = sorted(instances)
        async with self._turn:  # who comes meanwhile finds them
            now = self._api.context.uptime()
            self._known = {
                id_: (seen, one) for id_, (seen, one) in self._known.items() if now - seen < KEPT
            }
            await self._ask([id_ for id_ in sorted_ids if id_ not in self._known])
            return [self._known[id_][1] for id_ in sorted_ids if id_ in self._known]

    async def _ask(self, ids: list[str]) -> None:
        # By filter, since one id that is gone fails a whole call that names it.
        answers = await asyncio.gather(
            *(
                self._api.pages(
                    "ec2",
                    "DescribeInstances",
                    "Reservations",
                    Filters=[{"Name": "instance-id", "Values": part}],
                )
                for part in in_parts(ids, _MOST_VALUES)
            )
        )
        now = self._api.context.uptime()
        for answer in answers:
            for reservation in answer:
                for instance in reservation["Instances"]:
                    kept = {key: instance.get(key) for key in _FIELDS}
                    self._known[str(instance["InstanceId"])] = now, kept
