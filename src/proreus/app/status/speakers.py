"""Sum up what BGP speakers announce.

Speakers write nothing: their pods say whether they are well, and what they announce follows from
the same objects and the same decision as theirs.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from proreus.app.doctor.observed import PODS, Pod
from proreus.app.speaker.pods import SPEAKERS, problem
from proreus.app.status.summary import SpeakerRow
from proreus.controllers.service.intake import slices_by_service
from proreus.kube.client import Client
from proreus.kube.errors import KubeError
from proreus.kube.objects import EndpointSlice, Node, Service
from proreus.kube.requests import ENDPOINT_SLICES
from proreus.providers.local.addresses import Pool
from proreus.providers.local.bgp.plan import candidates, decided

SHOWN: Final = 8
"""Addresses that are listed of one speaker."""


async def read(
    client: Client,
    nodes: Iterable[Node],
    services: Iterable[Service],
    pools: Sequence[Pool] | None,
) -> tuple[SpeakerRow, ...]:
    """Return what BGP speakers announce; nothing if there are none, or they may not be read."""
    try:
        pods = (await client.list(PODS, label_selector=SPEAKERS)).items
        slices = (await client.list(ENDPOINT_SLICES)).items if pods else ()
    except KubeError:
        return ()
    return speaker_rows(pods, nodes, services, slices, pools)


def speaker_rows(
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    services: Iterable[Service],
    slices: Iterable[EndpointSlice],
    pools: Sequence[Pool] | None,
) -> tuple[SpeakerRow, ...]:
    """Return a row for each speaker, the ones that are not well first. Pure.

    Args:
        pods: The speakers' pods.
        nodes: All nodes.
        services: All Services.
        slices: All EndpointSlices.
        pools: The pools of the cloud-config; None if they are not known, so that every address
            counts.
    """
    found = candidates(services, slices_by_service(slices), pools)
    known = {node.metadata.name: node for node in nodes}
    rows = []
    for pod in pods:
        node = pod.spec.node_name
        announced = sorted(
            decided(found, known.get(node)).announced, key=lambda one: (one.version, int(one))
        )
        rows.append(
            SpeakerRow(
                node=node or "no node",
                problem=problem(pod),
                addresses=tuple(map(str, announced[:SHOWN])),
                more=max(0, len(announced) - SHOWN),
            )
        )
    return tuple(sorted(rows, key=lambda row: (not row.problem, row.node)))
