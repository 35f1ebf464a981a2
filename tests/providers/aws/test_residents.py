"""Which instances that Nodes name are somebody else's, in a cluster whose own lack the tag, too."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proreus.providers.aws.api import Api
from proreus.providers.aws.identity import ClusterTags, Place
from proreus.providers.aws.residents import Residents

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .site import node_of

TAGGED = [f"i-{number:017x}" for number in range(60)]
UNTAGGED = [f"i-{number:017x}" for number in range(60, 99)]
DATABASE = f"i-{99:017x}"
"""An instance of another service, which a kubelet names on its Node."""


def described(id_: str) -> dict[str, Any]:
    tags = [{"Key": "kubernetes.io/cluster/test", "Value": "owned"}] if id_ in TAGGED else []
    return {"InstanceId": id_, "Tags": tags}


async def strange(*shown: str, nodes: Iterable[str] = (*TAGGED, *UNTAGGED, DATABASE)) -> set[str]:
    """Which of the instances are taken for somebody else's."""

    async def pages(*_: str, Filters: Any) -> list[Mapping[str, Any]]:  # noqa: N803 - AWS' name
        return [{"Instances": [described(id_) for id_ in Filters[0]["Values"]]}]

    context = SimpleNamespace(listers={"nodes": Objects(map(node_of, nodes))}, uptime=lambda: 0.0)
    api = cast("Api", SimpleNamespace(context=context, pages=pages))
    residents = Residents(api, Place("us-east-1", "vpc-1", "", ClusterTags("test")))
    return set(await residents.strangers(map(described, shown)))


@pytest.mark.parametrize("hosts", [[TAGGED[0]], UNTAGGED], ids=["any", "those that lack the tag"])
async def test_all_nodes_tell_whether_the_tag_matters_not_chance_nor_who_is_asked_about(
    hosts: list[str],
) -> None:
    """Which nodes are hosts, the labels tell that a Service names."""
    for _ in range(30):
        assert DATABASE in await strange(*hosts, DATABASE)


async def test_in_a_large_cluster_a_sample_tells_it() -> None:
    many = [f"i-{number:017x}" for number in range(1000, 2000)]
    nodes = (*TAGGED, *UNTAGGED, *many, DATABASE)
    assert await strange(TAGGED[0], DATABASE, nodes=nodes) == set()
    assert await strange(TAGGED[0], DATABASE, nodes=(*TAGGED, DATABASE)) == {DATABASE}
