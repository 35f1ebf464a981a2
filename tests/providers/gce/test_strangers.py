"""What is somebody else's in the project: another controller's, an operator's, another zone's."""

import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Done
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.gce.balancing.annotations import TIER, TYPE
from proreus.providers.gce.balancing.naming import described

from .cloud.world import PROJECT, REGION
from .lb_site import NAME, Balancing, lbs

__all__ = ["lbs"]

INTERNAL = {TYPE: "Internal"}
RANGE = "10.128.0.0/20"
ASKED = "10.128.9.9"
RULE = f"projects/{PROJECT}/regions/{REGION}/forwardingRules/{NAME}"


async def test_a_rule_of_the_controller_of_backend_services_outlives_our_cleanup(
    lbs: Balancing,
) -> None:
    """Both controllers give it the same name, which holds the Service's UID."""
    await lbs.make()
    with lbs.gce.changing(RULE) as rule:
        link = rule.pop("target")
        rule["backendService"] = link.replace("targetPools", "backendServices") + "-theirs"
        rule.pop("labels")
    assert await lbs.delete() == Done()
    assert lbs.left() == {"forwardingRules": [NAME]}
    assert await lbs.delete() == Done(found=False)
    assert lbs.left() == {"forwardingRules": [NAME]}


def keep(lbs: Balancing, address: str, **fields: object) -> None:
    """Reserve an address that is in use, as whoever wants to keep it does."""
    body = {"name": "kept", "address": address, "addressType": "EXTERNAL"}
    path = f"projects/{PROJECT}/regions/{REGION}/addresses/kept"
    with lbs.gce.world.lock:
        lbs.gce.world.put(path, {**body, "networkTier": "PREMIUM", **fields})


async def test_an_address_that_somebody_has_reserved_meanwhile_stays_the_service_s(
    lbs: Balancing,
) -> None:
    before = await lbs.make()
    keep(lbs, before)
    assert await lbs.make(session_affinity="ClientIP") == before
    await lbs.delete()
    assert lbs.left() == {"addresses": ["kept"]}


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({}, True),
        ({"description": described("shop/web")}, True),
        ({"description": described("shop/second")}, False),
    ],
)
async def test_it_stays_also_if_the_process_ended_while_the_rule_was_made_anew(
    lbs: Balancing, fields: dict[str, object], *, is_kept: bool
) -> None:
    before = await lbs.make()
    keep(lbs, before)
    edited = lbs.desired(lbs.service(session_affinity="ClientIP"))
    lbs.gce.fail("compute.forwardingRules.insert", status=500)
    assert isinstance(await lbs.answer(edited), CloudError)
    keep(lbs, before, **fields)
    shown = (LoadBalancerIngress(ip=before),)
    ref = msgspec.structs.replace(edited.ref, last_ingress=shown)
    answer = await lbs.ensured(msgspec.structs.replace(edited, ref=ref))
    assert (answer.ingress[0].ip == before) is is_kept


def keep_elsewhere(lbs: Balancing, address: str) -> None:
    """Reserve an address of the same value in another network, whose subnetworks have its ranges.

    All networks of Google's automatic mode have the same ranges.
    """
    network = lbs.gce.world.link(f"projects/{PROJECT}/global/networks/other")
    subnet = f"projects/{PROJECT}/regions/{REGION}/subnetworks/other"
    with lbs.gce.world.lock:
        lbs.gce.world.put(subnet, {"name": "other", "ipCidrRange": RANGE, "network": network})
    link, internal = lbs.gce.world.link(subnet), "INTERNAL"
    keep(lbs, address, addressType=internal, networkTier="", subnetwork=link)
    user = {"name": "theirs", "loadBalancingScheme": internal, "subnetwork": link}
    with lbs.gce.world.lock:
        path = RULE.replace(NAME, "theirs")
        lbs.gce.world.put(path, {**user, "IPAddress": address, "IPProtocol": "TCP"})


async def test_an_address_of_another_network_holds_none_of_ours(lbs: Balancing) -> None:
    before = await lbs.make(annotations=INTERNAL)
    keep_elsewhere(lbs, before)
    lbs.gce.calls.clear()
    assert await lbs.make((80, "TCP"), (81, "TCP"), annotations=INTERNAL) == before
    calls = [one.removeprefix("compute.") for one in lbs.gce.writes()]
    assert calls.index("addresses.insert") < calls.index("forwardingRules.delete")


async def test_an_address_that_is_reserved_in_another_network_may_be_asked_for(
    lbs: Balancing,
) -> None:
    keep_elsewhere(lbs, ASKED)
    assert await lbs.make(annotations=INTERNAL, load_balancer_ip=ASKED) == ASKED


async def test_a_tier_that_is_not_asked_for_any_more_stays_with_its_address(
    lbs: Balancing,
) -> None:
    before = await lbs.make(annotations={TIER: "Standard"})
    assert await lbs.make((80, "TCP"), (81, "TCP")) == before
    assert lbs.gce.one("forwardingRules", NAME)["networkTier"] == "STANDARD"
    assert "addresses" not in lbs.left()
