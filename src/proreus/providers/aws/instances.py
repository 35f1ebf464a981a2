"""Describe instances of EC2 and machines of Fargate."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import ask_all, attempt, in_parts
from proreus.kube.objects import Node
from proreus.providers.aws.api import Api
from proreus.providers.aws.config import Global
from proreus.providers.aws.identity import ClusterTags, Described, Place, tags_of
from proreus.providers.aws.lookup import (
    MOST_IDS,
    MOST_RESULTS,
    MOST_VALUES,
    Answer,
    by_id,
    instances,
)
from proreus.providers.aws.machines import (
    LABEL_NETWORK_LAYER,
    LABEL_ZONE_ID,
    TERMINATED,
    fargate,
    instance,
    state_of,
    zone_of,
)
from proreus.providers.aws.names import Target, is_address, is_of, region_of, target
from proreus.providers.aws.residents import Residents
from proreus.providers.aws.topology import Topology

_LIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]


class Lookup(msgspec.Struct, frozen=True):
    """The answers to a batch of look-ups; a part that failed is its error.

    Attributes:
        by_id: Instances by id; None if AWS says that there is none, an error if it is not known.
        by_name: Live instances by private DNS name; a name without an instance is left out.
        by_host: Network interfaces by the address or name of a Fargate pod.
    """

    by_id: Mapping[str, Answer] | CloudError
    by_name: Mapping[str, Sequence[Described]] | CloudError
    by_host: Mapping[str, Sequence[Described]] | CloudError


class AWSInstances:
    """The capability `Instances` of the provider `aws`."""

    def __init__(
        self,
        api: Api,
        place: Place,
        settings: Global,
        seen: Callable[[Mapping[str, Described]], None] | None = None,
    ) -> None:
        """Keep the client of AWS and the `place`; `seen` is called with the instances of nodes.

        It is not called with instances of other clusters, and of others of the account.
        """
        self._residents = Residents(api, place)
        self._seen = seen
        self._api = api
        self._place = place
        self._families = settings.node_ip_families
        self._topology = Topology(api, settings.supported_topology_instance_type_pattern)

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return MOST_IDS

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this region: by the zone in its provider id, or else its label.

        Nothing on a Node tells the account: that the answers are those of the right one, witnesses
        have to show.
        """
        if not node.spec.provider_id:
            return Ownership.UNKNOWN
        region = region_of(node)
        if region is None:
            return Ownership.NO
        if not region:
            return Ownership.UNKNOWN
        return Ownership.YES if is_of(region, self._place.region) else Ownership.NO

    def scope(self, node: Node) -> str:
        """Return a scope of its own for nodes of Fargate, which another listing shows.

        It is one of the cluster's VPC: with the wrong one in the cloud-config it lacks them all,
        while instances are found by their ids.
        """
        return f"Fargate in {self._place.vpc or 'any VPC'}" if target(node).fargate else ""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: one call for all ids, one for each 200 names, one for Fargate."""
        targets = {node.metadata.name: target(node) for node in nodes}
        found = await self._find(targets.values())
        machines = {
            node.metadata.name: match(node, targets[node.metadata.name], found, self._place.tags)
            for node in nodes
        }
        described = {
            name: one
            for name, one in machines.items()
            if isinstance(one, Mapping) and "InstanceId" in one
        }
        await self._show(described)
        labels = await self._labels(nodes, described)
        return {
            node.metadata.name: self._answer(node, machines[node.metadata.name], labels)
            for node in nodes
        }

    async def _show(self, described: Mapping[str, Described]) -> None:
        """Call the hook with the instances that are surely nodes': a Node names its own itself."""
        if self._seen is None:
            return
        tags = self._place.tags
        strange = await attempt(self._residents.strangers, described.values())
        if isinstance(strange, CloudError):
            strange = dict.fromkeys(
                (
                    str(one["InstanceId"])
                    for one in described.values()
                    if not tags.has(tags_of(one))
                ),
                str(strange),
            )
        self._seen(
            {
                name: one
                for name, one in described.items()
                if not tags.is_anothers(tags_of(one)) and str(one["InstanceId"]) not in strange
            }
        )

    async def _find(self, targets: Iterable[Target]) -> Lookup:
        target = list(targets)
        ids = {one.id for one in target} - {""}
        names = {one.dns_name for one in target} - {""}
        hosts = {one.fargate for one in target} - {""}
        of_ids, of_names, of_hosts = await ask_all(
            (ids, partial(by_id, self._api)), (names, self._by_name), (hosts, self._by_host)
        )
        return Lookup(of_ids, of_names, of_hosts)

    async def _by_name(self, names: Collection[str]) -> Mapping[str, Sequence[Described]]:
        found: dict[str, list[Described]] = {}
        for part in in_parts(names, MOST_VALUES):
            filters = [
                {"Name": "private-dns-name", "Values": part},
                {"Name": "instance-state-name", "Values": _LIVE},
            ]
            for one in await instances(self._api, Filters=filters, MaxResults=MOST_RESULTS):
                found.setdefault(str(one.get("PrivateDnsName", "")), []).append(one)
        return found

    async def _by_host(self, hosts: Collection[str]) -> Mapping[str, Sequence[Described]]:
        """Find interfaces in the cluster's VPC by address, which may be taken elsewhere, too."""
        found: dict[str, list[Described]] = {}
        for name, field, of_kind in (
            ("private-ip-address", "PrivateIpAddress", [h for h in hosts if is_address(h)]),
            ("private-dns-name", "PrivateDnsName", [h for h in hosts if not is_address(h)]),
        ):
            for part in in_parts(of_kind, MOST_VALUES):
                filters = [
                    {"Name": name, "Values": part},
                    {"Name": "attachment.status", "Values": ["attached"]},
                ]
                if self._place.vpc:
                    filters.append({"Name": "vpc-id", "Values": [self._place.vpc]})
                for one in await self._api.pages(
                    "ec2",
                    "DescribeNetworkInterfaces",
                    "NetworkInterfaces",
                    Filters=filters,
                    MaxResults=MOST_RESULTS,
                ):
                    found.setdefault(str(one.get(field, "")), []).append(one)
        return found

    async def _labels(
        self, nodes: Sequence[Node], described: Mapping[str, Described]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        """Return additional labels by node name.

        As long as EC2 fails to tell, a node keeps those that it has: an answer without them would
        take them away.
        """
        zone_ids = await self._topology.zone_ids(described.values())
        layers = await self._topology.layers(described.values())
        labels: dict[str, Mapping[str, str] | CloudError] = {}
        for node in nodes:
            machine = described.get(node.metadata.name)
            if machine is None:
                continue
            of_layers = layers.get(str(machine["InstanceId"]))
            zone_id = zone_ids.get(zone_of(machine)) or node.metadata.labels.get(LABEL_ZONE_ID)
            mine = {LABEL_ZONE_ID: zone_id} if zone_id else {}
            if of_layers is None or isinstance(of_layers, CloudError):
                kept = _layers_of(node)
                if of_layers is not None and not kept:
                    labels[node.metadata.name] = of_layers
                    continue
                of_layers = kept
            labels[node.metadata.name] = {**mine, **of_layers}
        return labels

    def _answer(
        self,
        node: Node,
        machine: Described | InstanceAnswer,
        labels: Mapping[str, Mapping[str, str] | CloudError],
    ) -> InstanceAnswer:
        if isinstance(machine, Instance | NotFound | CloudError):
            return machine
        known_as, name = node.spec.provider_id, node.metadata.name
        region, families = self._place.region, self._families
        if "InstanceId" not in machine:
            return fargate(machine, region=region, families=families, name=name, known_as=known_as)
        of_node = labels[name]
        if isinstance(of_node, CloudError):
            return of_node
        return instance(
            machine, region=region, families=families, labels=of_node, known_as=known_as
        )


def match(
    node: Node, target: Target, found: Lookup, tags: ClusterTags
) -> Described | NotFound | CloudError:
    """Return the answer about one node from what was looked up. Pure."""
    if target.problem:
        return InvalidRequest(target.problem)
    if target.id:
        return _match_id(node, target.id, found.by_id)
    if target.fargate:
        return _match_host(target.fargate, found.by_host)
    return _match_name(target.dns_name, found.by_name, tags)


def _match_id(
    node: Node, id_: str, found: Mapping[str, Answer] | CloudError
) -> Described | NotFound | CloudError:
    if isinstance(found, CloudError):
        return found
    machine = found[id_]
    if machine is None:
        return NotFound()
    if isinstance(machine, CloudError):
        return machine
    if state_of(machine) == TERMINATED:
        # A name proves nothing about which machine it was.
        return NotFound(tombstone=bool(node.spec.provider_id))
    return machine


def _match_host(
    host: str, found: Mapping[str, Sequence[Described]] | CloudError
) -> Described | NotFound | CloudError:
    if isinstance(found, CloudError):
        return found
    alike = found.get(host, ())
    if len(alike) > 1:
        return IdentityConflict(f"{len(alike)} network interfaces have {host}")
    return alike[0] if alike else NotFound()


def _match_name(
    name: str, found: Mapping[str, Sequence[Described]] | CloudError, tags: ClusterTags
) -> Described | NotFound | CloudError:
    if isinstance(found, CloudError):
        return found
    alike = found.get(name, ())
    mine = [one for one in alike if tags.has(tags_of(one))]
    if len(mine) > 1:
        ids = ", ".join(sorted(str(one["InstanceId"]) for one in mine))
        return IdentityConflict(f"{len(mine)} instances have the private DNS name {name}: {ids}")
    if alike and not mine:
        ids = ", ".join(sorted(str(one["InstanceId"]) for one in alike))
        return CloudError(
            f"{ids} has the private DNS name {name}, but not the cluster's tag: tag it {tags.key}"
        )
    return mine[0] if mine else NotFound()


def _layers_of(node: Node) -> dict[str, str]:
    return {
        key: value
        for key, value in node.metadata.labels.items()
        if key.startswith(LABEL_NETWORK_LAYER)
    }
