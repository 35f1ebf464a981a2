"""Tell machines of the cluster's nodes from others of the account that a Node may name.

A Node names its instance itself, so a kubelet can name any instance. In a cluster whose instances
bear its tag, as the official manager asks for, one without the tag is somebody else's.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import some_of
from proreus.kube.objects import Node
from proreus.providers.aws.identity import ClusterTags, Described, Place, tags_of
from proreus.providers.aws.lookup import MOST_VALUES, by_id
from proreus.providers.aws.memberships import Memberships
from proreus.providers.aws.names import instance_id

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api


class Residents:
    """The judge of instances that Nodes name and that bear no tag of the cluster."""

    def __init__(self, api: "Api", place: Place) -> None:
        """Keep the client of AWS, all Nodes, and the cluster's tags."""
        self._api = api
        self._nodes = api.context.listers["nodes"]
        self._tags = place.tags
        self._memberships = Memberships(api)

    async def strangers(self, described: Iterable[Described]) -> dict[str, str]:
        """Return why instances are taken for somebody else's, by their ids.

        Only where one of them lacks the cluster's tag, AWS is asked about other nodes'. Of many
        nodes some tell by chance whether most have it, whoever is asked about.

        Args:
            described: The instances as EC2 describes them, with their tags.

        Raises:
            CloudError: AWS does not answer.
        """
        shown = {str(one["InstanceId"]): one for one in described}
        if all(self._tags.has(tags_of(one)) for one in shown.values()):
            return {}
        named = (one.spec.provider_id for one in self._nodes.all() if isinstance(one, Node))
        every = {id_ for one in named if (id_ := instance_id(one))} | shown.keys()
        asked = set(some_of(sorted(every), MOST_VALUES))
        listed = await self._memberships.of(asked - shown.keys())
        left_out = asked - shown.keys() - {str(one["InstanceId"]) for one in listed}
        # A listing may leave out instances that exist: whether one is gone it does not say.
        answers = (await by_id(self._api, left_out)).values() if left_out else ()
        found = [one for one in answers if isinstance(one, Mapping)]
        unknown = sum(isinstance(one, CloudError) for one in answers)
        here = [shown[id_] for id_ in asked & shown.keys()]
        return strangers(shown.values(), [*here, *listed, *found], self._tags, unknown)


def strangers(
    described: Iterable[Described],
    others: Collection[Described],
    tags: ClusterTags,
    unknown: int = 0,
) -> dict[str, str]:
    """Return why instances without the cluster's tag are somebody else's, by their ids. Pure.

    They are none where half of the nodes' instances lack it, since then it says nothing.

    Args:
        described: Instances that Nodes name, with their tags.
        others: Those of all nodes, or of some by chance, with their tags.
        tags: The tags by which objects are known to be the cluster's.
        unknown: How many more there may be, which EC2 does not show now: they may have the tag.
    """
    lacking = sum(not tags.has(tags_of(one)) for one in others)
    if 2 * lacking >= len(others) + unknown:
        return {}
    return {
        (id_ := str(one["InstanceId"])): f"instance {id_} has no tag of this cluster, as most"
        f" instances of its nodes have: tag it {tags.key} if it is the cluster's"
        for one in described
        if not tags.has(tags_of(one))
    }
