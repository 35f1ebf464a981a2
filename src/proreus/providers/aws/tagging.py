"""Tag the instances of nodes, and their volumes, if the cloud-config asks for it.

What `describe` reads for the node controllers has the instances' tags as well, so a tag that
somebody removes comes back with the next refresh of nodes, without a call of its own. Tags are
taken away again from instances whose Node has been deleted for a while, and from those of their
volumes that no other instance has.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import Node
from proreus.providers.aws import metrics
from proreus.providers.aws.api import Api
from proreus.providers.aws.config import Resource
from proreus.providers.aws.config import Tagging as Settings
from proreus.providers.aws.identity import ClusterTags, Described, tags_of
from proreus.providers.aws.lookup import MOST_VALUES, instances
from proreus.providers.aws.names import instance_id

if TYPE_CHECKING:
    from proreus.cloudprovider.listers import Lister
    from proreus.kube.objects import KubeObject

log = logging.getLogger(__name__)

MOST_RESOURCES = 50
"""Resources of one call, as many as the official manager's; EC2 takes 1,000."""
GRACE: Final = 300.0
"""Seconds for which a Node must have been gone before its instance loses the tags."""
_BATCH_DELAY = 0.5
_INTERVAL = 60.0
_RETRY_DELAY = 30.0
_ATTEMPTS = 3
_VOLUME = "vol-"
"""The prefix of the ids of volumes."""


class Tagging:
    """The task that tags machines in the background; it logs failures and tries again."""

    def __init__(
        self, api: Api, settings: Settings, nodes: "Lister[KubeObject]", cluster: ClusterTags
    ) -> None:
        """Keep the tags and the clients of AWS; nothing happens before `start`.

        Args:
            api: The client of AWS.
            settings: The settings that say which tags go on what.
            nodes: All nodes of the cluster.
            cluster: The tags by which instances are known to be the cluster's.
        """
        self._api = api
        self._cluster = cluster
        self._desired = settings.desired_tags
        self._instances = Resource.INSTANCE in settings.resources
        self._volumes = Resource.VOLUME in settings.resources
        self._nodes = nodes
        self._due: set[str] = set()
        self._unread: set[str] = set()
        self._is_late = False
        self._tagged: dict[str, tuple[str, ...]] = {}
        self._nodes_of: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, if there are tags to set."""
        if self._desired and self._task is None:
            self._task = asyncio.create_task(self._run(), name="aws-tagging")

    async def close(self) -> None:
        """End the task; the next process sets the tags that are missing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def seen(self, machines: Mapping[str, Described]) -> None:
        """Record instances by the name of their node, as EC2 describes them. No I/O."""
        if not self._desired:
            return
        for node, machine in machines.items():
            id_ = str(machine["InstanceId"])
            volumes = volumes_of(machine) if self._volumes else ()
            self._unread.update(set(volumes) - set(self._tagged.get(id_, ())))
            self._tagged[id_] = volumes
            self._nodes_of[id_] = node
            if self._instances and lacks(tags_of(machine), self._desired):
                self._due.add(id_)
        if self._due or self._unread:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(_BATCH_DELAY)
            try:
                await self._look_again()
                await self._read_volumes()
                await self._tag()
                await self._untag()
            except CloudError as error:
                log.warning(
                    "Failed to set or delete tags of instances and volumes; tried again: %s", error
                )
                self._is_late = True
                self._wake.set()
                await asyncio.sleep(_RETRY_DELAY)

    async def _look_again(self) -> None:
        """Leave out what is another cluster's by now, where tags could not be set for a while."""
        if not self._is_late:
            return
        volumes = {id_ for id_ in self._due if id_.startswith(_VOLUME)}
        self._unread |= volumes
        for part in in_parts(self._due - volumes, MOST_RESOURCES):
            self._due.difference_update(set(part).difference(await self._own(part)))
        self._due -= volumes
        self._is_late = False

    async def _read_volumes(self) -> None:
        """Read which volumes lack tags: descriptions of instances do not show it.

        One that is another cluster's by its tag is left alone, although it is attached here.
        """
        while self._unread:
            part = sorted(self._unread)[:MOST_RESOURCES]
            filters = [{"Name": "volume-id", "Values": part}]
            found = await self._api.pages("ec2", "DescribeVolumes", "Volumes", Filters=filters)
            self._unread.difference_update(part)
            self._due.update(
                str(volume["VolumeId"])
                for volume in found
                if lacks(known := tags_of(volume), self._desired)
                and not self._cluster.is_anothers(known)
            )

    async def _tag(self) -> None:
        tags = [{"Key": key, "Value": value} for key, value in self._desired.items()]
        while self._due:
            part = sorted(self._due)[:MOST_RESOURCES]
            await self._change("CreateTags", part, tags)
            self._due.difference_update(part)

    async def _untag(self) -> None:
        """Take the tags from instances whose Node is gone, and from their volumes.

        Several Nodes may name an instance: it keeps them while there is any. So does one that is
        another cluster's by now.
        """
        now = self._api.context.uptime()
        lost = [id_ for id_, name in self._nodes_of.items() if self._nodes.get(name) is None]
        left = self._named() if lost else frozenset()
        self._gone = {id_: self._gone.get(id_, now) for id_ in lost if id_ not in left}
        late = [id_ for id_, since in self._gone.items() if now - since >= GRACE]
        tags = [{"Key": key, "Value": value} for key, value in self._desired.items()]
        for part in in_parts(late, MOST_RESOURCES):
            own = await self._own(part)
            tagged = [*(own if self._instances else ()), *await self._volumes_left(own)]
            for ids in in_parts(tagged, MOST_RESOURCES):
                await self._change("DeleteTags", ids, tags)
            for id_ in part:
                self._tagged.pop(id_, None)
                self._nodes_of.pop(id_, None)

    def _named(self) -> frozenset[str]:
        """Return the ids of the instances that Nodes name."""
        every = (one.spec.provider_id for one in self._nodes.all() if isinstance(one, Node))
        return frozenset(id_ for one in every if (id_ := instance_id(one)) is not None)

    async def _own(self, ids: Sequence[str]) -> list[str]:
        """Return the instances that are not another cluster's by now."""
        filters = [{"Name": "instance-id", "Values": ids}]
        found = await instances(self._api, Filters=filters)
        theirs = {one["InstanceId"] for one in found if self._cluster.is_anothers(tags_of(one))}
        return [id_ for id_ in ids if id_ not in theirs]

    async def _volumes_left(self, ids: Collection[str]) -> list[str]:
        """Return the volumes of instances that nobody else has by now.

        Neither another instance, nor another cluster by its tag, which may not use it at the
        moment.
        """
        found: list[str] = []
        volumes = {volume for id_ in ids for volume in self._tagged[id_]}
        for part in in_parts(volumes, MOST_VALUES):
            filters = [{"Name": "volume-id", "Values": part}]
            shown = await self._api.pages("ec2", "DescribeVolumes", "Volumes", Filters=filters)
            for volume in shown:
                attached = {
                    str(attachment["InstanceId"]) for attachment in volume.get("Attachments") or ()
                }
                if attached <= set(ids) and not self._cluster.is_anothers(tags_of(volume)):
                    found.append(str(volume["VolumeId"]))
        return found

    async def _change(
        self, operation: str, ids: Collection[str], tags: list[dict[str, str]]
    ) -> None:
        """Add or delete tags; resources that EC2 does not know are left out."""
        left = list(ids)
        for _ in range(_ATTEMPTS):
            try:
                await self._api.call("ec2", operation, Resources=left, Tags=tags)
            except Refused as error:
                metrics.tagging_failed(error.code, [id_ for id_ in left if id_ in error.text])
                named = [id_ for id_ in left if id_ in error.text]
                if "NotFound" not in error.code or not named:
                    raise
                left = [id_ for id_ in left if id_ not in named]
                if not left:
                    return
            else:
                return
        for id_ in left:
            with contextlib.suppress(Refused):
                await self._api.call("ec2", operation, Resources=[id_], Tags=tags)


def lacks(tags: Mapping[str, str], desired: Mapping[str, str]) -> bool:
    """Tell whether tags are missing or have another value. Pure."""
    return any(tags.get(key) != value for key, value in desired.items())


def volumes_of(machine: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of the volumes that are attached to an instance. Pure."""
    mappings = machine.get("BlockDeviceMappings") or ()
    ids = (mapping.get("Ebs", {}).get("VolumeId") for mapping in mappings)
    return tuple(str(id_) for id_ in ids if id_)
