"""Read the network topology of instances and the ids of zones, each once."""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.api import Api
from proreus.providers.aws.identity import Described
from proreus.providers.aws.machines import network_layers, zone_id_of, zone_of

log = logging.getLogger(__name__)

MOST_IDS = 100
"""The most ids in one DescribeInstanceTopology (its API reference)."""
REST: Final = 24 * 3600.0
"""Seconds of silence after the region has said that it does not know of topologies."""

_UNSUPPORTED = frozenset({"UnsupportedOperation", "OperationNotSupported", "InvalidAction"})
_MOST_KEPT = 100_000


class Topology:
    """A cache of labels of instances, kept until an instance is started anew."""

    def __init__(self, api: Api, types: str) -> None:
        """Keep the client of AWS; ask only about instances whose type matches `types`."""
        self._api = api
        self._types = re.compile(types)
        self._layers: dict[tuple[str, object], dict[str, str]] = {}
        self._zone_ids: dict[str, str] = {}
        self._asking = asyncio.Lock()
        self._rests_until: float | None = None

    async def layers(
        self, instances: Iterable[Described]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        """Return the labels of the network's layers by instance id.

        An instance that is left out has no layers, or the region does not tell them; an error means
        that nobody knows yet.
        """
        known: dict[str, Mapping[str, str] | CloudError] = {}
        async with self._asking:  # the same instances are asked about by several controllers
            unknown: dict[str, Described] = {}
            for instance in instances:
                if not self._types.search(str(instance.get("InstanceType", ""))):
                    continue
                kept = self._layers.get(_key(instance))
                if kept is None:
                    unknown[str(instance["InstanceId"])] = instance
                else:
                    known[str(instance["InstanceId"])] = kept
            if self._rests_until is not None and self._api.context.uptime() < self._rests_until:
                return known
            for part in in_parts(unknown, MOST_IDS):
                known.update(await self._ask({id_: unknown[id_] for id_ in part}))
        return known

    async def _ask(
        self, instances: Mapping[str, Described]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        try:
            answer = await self._api.pages(
                "ec2", "DescribeInstanceTopology", "Instances", InstanceIds=list(instances)
            )
        except CloudError as error:
            if isinstance(error, Unauthenticated) or (
                isinstance(error, Refused) and error.code in _UNSUPPORTED
            ):
                self._rests_until = self._api.context.uptime() + REST
                log.warning("Nodes get no labels of the network topology: %s", error)
                return {}
            return dict.fromkeys(instances, error)
        if len(self._layers) > _MOST_KEPT:
            self._layers.clear()
        found = {str(one["InstanceId"]): one.get("NetworkNodes") or () for one in answer}
        layers = {id_: network_layers(found.get(id_, ())) for id_ in instances}
        self._layers.update({_key(instances[id_]): labels for id_, labels in layers.items()})
        return layers

    async def zone_ids(self, instances: Iterable[Described]) -> Mapping[str, str]:
        """Return the id of each instance's zone by the zone's name; ask where EC2 left it out.

        Raises:
            CloudError: The zone ids cannot be read now. Where the rights are missing, no zone has
                one.
        """
        lacking = set()
        for instance in instances:
            zone, id_ = zone_of(instance), zone_id_of(instance)
            if id_:
                self._zone_ids[zone] = id_
            elif zone and zone not in self._zone_ids:
                lacking.add(zone)
        if lacking:
            try:
                zones = await self._api.call(
                    "ec2", "DescribeAvailabilityZones", ZoneNames=sorted(lacking)
                )
            except Unauthenticated as error:
                log.warning("Nodes get no labels of their zones' ids: %s", error)
                self._zone_ids.update(dict.fromkeys(lacking, ""))
            else:
                for zone in zones["AvailabilityZones"]:
                    self._zone_ids[zone["ZoneName"]] = zone.get("ZoneId", "")
        return self._zone_ids


def _key(described: Described) -> tuple[str, object]:
    """Return the key of an instance until its next start: a stopped one may come up elsewhere."""
    return str(described["InstanceId"]), described.get("LaunchTime")
