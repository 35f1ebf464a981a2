"""What has names as ours have and is not ours, and what a load balancer had in another form."""

from typing import Any

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.gce.balancing.annotations import RBS, TYPE

from .cloud.server import Gce
from .cloud.world import PROJECT, REGION
from .lb_site import Balancing, balancing, lbs
from .site import PATIENT
from .test_subsets import RULE, SECTIONS

__all__ = ["lbs"]

INTERNAL = {TYPE: "Internal"}
ELSEWHERE = "europe-west1-b"
OTHER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-00000000000f")
FORMER: dict[str, Any] = {"uid": "5e00cccc-0000-4000-8000-000000000003"}
SUBSET_RULE = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{RULE}"
EVERY = f"{SECTIONS}backend-services = true\n"
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "pool": (PATIENT, {}),
    "external": (EVERY, {"annotations": {RBS: "enabled"}}),
    "internal": (PATIENT, {"annotations": INTERNAL}),
    "subset": (SECTIONS, {"annotations": INTERNAL}),
}
"""The forms of load balancers, with the cloud-config and the fields that lead to them."""


def showing(lb: LoadBalancer, address: str) -> LoadBalancer:
    """The same of a Service whose status shows an address."""
    ref = msgspec.structs.replace(lb.ref, last_ingress=(LoadBalancerIngress(ip=address),))
    return msgspec.structs.replace(lb, ref=ref)


async def test_instance_groups_in_another_region_keep_their_instances(lbs: Balancing) -> None:
    """They are another cluster's, whose id was copied, or this cluster's in another cloud."""
    gce, world = lbs.gce, lbs.gce.world
    await lbs.make(annotations=INTERNAL)
    group = gce.names("instanceGroups")[0]
    gce.run("eu-1", zone=ELSEWHERE)
    zone = f"projects/{PROJECT}/zones/{ELSEWHERE}"
    path = f"{zone}/instanceGroups/{group}"
    with world.lock:
        members = [world.link(gce.machine("eu-1"))]
        world.put(path, {"name": group, "instances": members, "zone": world.link(zone)})
    before = dict(world.objects[path])
    lbs.nodes = lbs.nodes[:1]
    await lbs.make(annotations=INTERNAL)
    assert world.objects[path] == before
    await lbs.delete()
    assert world.objects[path] == before


async def test_a_shared_firewall_rule_keeps_the_tags_of_nodes_in_another_cloud(gce: Gce) -> None:
    async with (
        balancing(gce, "node-tags = west") as west,
        balancing(gce, "node-tags = east") as east,
    ):
        await west.make(annotations=INTERNAL)
        await east.make(annotations=INTERNAL, **FORMER)
        (name,) = (one for one in gce.names("firewalls") if one.endswith("-node-hc"))
        assert gce.one("firewalls", name)["targetTags"] == ["east", "west"]


async def test_an_address_that_another_cluster_holds_for_a_moment_is_refused(
    lbs: Balancing,
) -> None:
    """Nothing uses it while the forwarding rule is made anew, and the namespaces are called alike."""
    address = await lbs.make()
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    edited = lbs.desired(lbs.service(session_affinity="ClientIP"))
    assert isinstance(await lbs.answer(edited), CloudError)
    asked = lbs.service(load_balancer_ip=address, **FORMER)
    answer = await lbs.answer(lbs.desired(asked, cluster=OTHER))
    assert isinstance(answer, InvalidRequest)
    assert "shop/web" in str(answer)
    assert (await lbs.ensured(edited)).ingress[0].ip == address
