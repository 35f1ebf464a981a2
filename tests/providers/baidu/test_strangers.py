"""The emulator is spoken to by a client that is not ours: the vendor's SDK for Python."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from .emulator.server import Emulator
from .lb_site import NAME, LBSite, lb_site
from .vendor import (
    BccClient,
    BceClientConfiguration,
    BceCredentials,
    BceHttpClientError,
    Billing,
    BlbClient,
    EipClient,
    NoRetryPolicy,
    RouteClient,
)

# The SDK leaves connections to the garbage collector, and takes the time as newer Python will not.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:datetime:DeprecationWarning"),
]


def configured(emulator: Emulator, key: str = "", secret: str = "") -> BceClientConfiguration:
    return BceClientConfiguration(
        credentials=BceCredentials(key or emulator.key, secret or emulator.secret),
        endpoint=emulator.url.encode(),
        retry_policy=NoRetryPolicy(),
    )


async def told(function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    return await asyncio.to_thread(function, *given, **more)


async def test_the_sdk_lists_machines_page_by_page(emulator: Emulator) -> None:
    site = LBSite(emulator, 8)
    emulator.page = 3
    client = BccClient(configured(emulator))
    names, marker = [], None
    while True:
        page = await told(client.list_instances, marker=marker, max_keys=3)
        names += [one.hostname for one in page.instances]
        if not page.is_truncated:
            break
        marker = page.next_marker
    assert names == [f"node-{number}" for number in range(1, 9)]
    assert len(site.machines) == 8


async def test_the_sdk_makes_a_load_balancer_and_takes_it_away(emulator: Emulator) -> None:
    emulator.rights = None
    site = LBSite(emulator)
    blb, eip = BlbClient(configured(emulator)), EipClient(configured(emulator))
    made = await told(blb.create_loadbalancer, site.vpc, site.subnet, name="lb", desc="by hand")
    id_ = made.blb_id
    await told(blb.create_tcp_listener, id_, 80, 30080, "RoundRobin")
    await told(
        blb.create_udp_listener, id_, 53, 30053, "LeastConnection", health_check_string="ping"
    )
    await told(blb.update_tcp_listener, id_, 80, backend_port=30081)
    servers = [{"instanceId": one, "weight": 50} for one in site.machines]
    await told(blb.add_backend_servers, id_, servers)
    listeners = await told(blb.describe_all_listeners, id_)
    assert {(one.listener_type, one.backend_port) for one in listeners.listener_list} == {
        ("TCP", 30081),
        ("UDP", 30053),
    }
    await told(blb.remove_backend_servers, id_, site.machines[:1])
    left = await told(blb.describe_backend_servers, id_)
    assert [one.instance_id for one in left.backend_server_list] == site.machines[1:]
    bought = await told(eip.create_eip, 10, name="eip", billing=Billing("Postpaid", "ByTraffic"))
    await told(eip.bind_eip, bought.eip, "BLB", id_)
    await told(eip.resize_eip, bought.eip, 20)
    (shown,) = (await told(eip.list_eips)).eip_list
    assert (shown.instance_id, shown.bandwidth_in_mbps, shown.status) == (id_, 20, "binded")
    await told(eip.unbind_eip, bought.eip)
    await told(eip.release_eip, bought.eip)
    await told(blb.delete_listeners, id_, port_type_list=[{"port": 53, "type": "UDP"}])
    await told(blb.update_loadbalancer, id_, name="other", desc="else")
    (shown,) = (await told(blb.describe_loadbalancers, name="other")).blb_list
    assert shown.desc == "else"
    await told(blb.delete_loadbalancer, id_)
    assert site.is_empty()


async def test_the_sdk_reads_and_makes_routes(emulator: Emulator) -> None:
    emulator.rights = None
    site = LBSite(emulator)
    client = RouteClient(configured(emulator))
    table = (await told(client.get_route, vpc_id=site.vpc)).route_table_id
    made = await told(
        client.create_route, table, "0.0.0.0/0", "172.16.1.0/24", "custom", "x", site.machines[0]
    )
    (rule,) = (await told(client.get_route, vpc_id=site.vpc)).route_rules
    assert (rule.route_rule_id, rule.nexthop_id) == (made.route_rule_id, site.machines[0])
    await told(client.delete_route, made.route_rule_id)
    assert not emulator.world.rules


async def test_the_sdk_reads_what_ours_has_made(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired())
        client = BlbClient(configured(emulator))
        (shown,) = (await told(client.describe_loadbalancers)).blb_list
        assert (shown.name, shown.public_ip) == (NAME, answer.ingress[0].ip)


async def test_a_wrong_key_or_secret_is_refused_to_the_sdk(emulator: Emulator) -> None:
    for more, code in (
        ({"key": "nobody"}, "InvalidAccessKeyId"),
        ({"secret": "wrong"}, "SignatureDoesNotMatch"),
    ):
        client = BccClient(configured(emulator, **more))
        with pytest.raises(BceHttpClientError) as refused:
            await told(client.list_instances)
        assert refused.value.code == code
