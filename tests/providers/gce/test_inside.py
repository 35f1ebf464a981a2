"""Addresses inside the cluster, of which Google knows nothing: no internal Service gets one."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import Ensured
from proreus.kube.objects import LoadBalancerIngress, Node, NodeSpec
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .lb_site import SECOND, Balancing, balancing
from .site import PATIENT
from .test_strangers import of_bank
from .test_subnetworks_of_others import THEIRS, found

GIVEN = "10.9.3.233"
"""The first address that Google gives in that subnetwork."""


def with_pods(cidr: str) -> Node:
    one = objects.node("node-9", f"gce://{PROJECT}/{ZONES[0]}/node-9")
    spec = NodeSpec(provider_id=one.spec.provider_id, pod_cidr=cidr, pod_cidrs=(cidr,))
    return msgspec.structs.replace(one, spec=spec)


def inside(of: str) -> dict[str, Any]:
    """What has the address inside the cluster: the Service of another namespace, or a pod."""
    if of == "pod":
        return {"nodes": Objects([with_pods("10.9.3.0/24")]), "services": Objects()}
    made: dict[str, Any] = {"cluster_ip": GIVEN, "cluster_ips": (GIVEN,)}
    dns = of_bank(Balancing.service(name="dns", uid=SECOND["uid"], **made))
    return {"services": Objects([dns])}


@pytest.mark.parametrize("of", ["Service", "pod"])
@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("asked", [GIVEN, ""])
async def test_no_service_gets_an_address_that_is_another_one_s_inside(
    gce: Gce, of: str, asked: str, *, is_listed: bool
) -> None:
    """A network may have a subnetwork with the same addresses; nodes would go by both."""
    sections = PATIENT + (f"[Tenants]\nallow = shop={GIVEN}\n" if is_listed else "")
    async with balancing(gce, "", sections, **inside(of)) as lbs:
        found(lbs)
        lb = lbs.desired(lbs.service(annotations=THEIRS, load_balancer_ip=asked))
        answer = await lbs.answer(lb)
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest), answer
        whose = "bank/dns" if of == "Service" else "it is of the pods of the node node-9"
        assert whose in str(answer)
        assert bool(lbs.left()) is not bool(asked)
        beside = lbs.service(annotations=THEIRS, **SECOND)
        if of == "Service" and not asked:
            assert (await lbs.ensured(lbs.desired(beside))).ingress[0].ip != GIVEN


@pytest.mark.parametrize("of", ["Service", "pod"])
async def test_a_service_goes_on_with_the_address_that_it_shows(gce: Gce, of: str) -> None:
    async with balancing(gce) as lbs:
        found(lbs)
        assert await lbs.make(annotations=THEIRS) == GIVEN
    async with balancing(gce, **inside(of)) as lbs:
        lb = lbs.desired(lbs.service((80, "TCP"), (81, "TCP"), annotations=THEIRS))
        ref = msgspec.structs.replace(lb.ref, last_ingress=(LoadBalancerIngress(ip=GIVEN),))
        answer = await lbs.ensured(msgspec.structs.replace(lb, ref=ref))
        assert answer.ingress[0].ip == GIVEN
