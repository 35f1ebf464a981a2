"""Requests whose answers the wire and the real services must have in common.

They are those that the provider sends, with good and bad answers, in one story that leaves nothing
behind. What stands in braces is known from the stage (`stage.py`) or kept from an earlier answer.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.providers.nova.names import pattern
from proreus.providers.openstack.routes import ATOMIC

MISSING: Final = "00000000-0000-4000-8000-0000000000ff"
"""Nothing has this id."""
PREFIX: Final = "recorded"
"""How servers and load balancers are named."""


class Step(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        name: Unique.
        request: Method, service and path.
        body: What is sent.
        headers: Beside the token.
        keep: Names for what stands at a place in the answer, such as `servers.0.id`.
        settles: The load balancer that Octavia then works on; the next step waits until it is done.
        busy: The load balancer that Octavia must be working on when the request comes.
        mixed: Which things are in the answer is not the same each time.
    """

    name: str
    request: str
    body: Any = None
    headers: Mapping[str, str] = {}
    keep: Mapping[str, str] = {}
    settles: str = ""
    busy: str = ""
    mixed: bool = False


def _login(password: str, project: str) -> Any:
    domain = {"name": "Default"}
    user = {"name": "{user}", "password": password, "domain": domain}
    scope = {"project": {"name": project, "domain": domain}}
    identity = {"methods": ["password"], "password": {"user": user}}
    return {"auth": {"identity": identity, "scope": scope}}


def _query(**parameters: str | tuple[str, ...]) -> str:
    pairs = [
        f"{name}={value}"
        for name, given in parameters.items()
        for value in ((given,) if isinstance(given, str) else given)
    ]
    return "&".join(pairs)


_FIELDS = (
    "id", "device_id", "status", "fixed_ips", "network_id", "trunk_details", "mac_address",
    "allowed_address_pairs", "port_security_enabled", "revision_number", "security_groups",
)  # fmt: skip
_PORTS = f"GET neutron /ports?{_query(fields=_FIELDS)}"
_NAMES = ("id", "name")
_TOKENS = "POST keystone /auth/tokens"

_KEYSTONE = (
    Step("a token", _TOKENS, _login("{password}", "{own}")),
    Step("a wrong password", _TOKENS, _login("wrong", "{own}")),
    Step("a project that is not there", _TOKENS, _login("{password}", "nowhere")),
    *(
        Step(f"a token that {service} does not take", f"GET {service} {path}",
             headers={"X-Auth-Token": "{revoked}"})
        for service, path in (
            ("nova", "/servers/{server1}"), ("neutron", "/routers/{router}"),
            ("octavia", "/lbaas/loadbalancers"),
        )
    ),
)  # fmt: skip

_LIST = "GET nova /servers/detail"
_NOVA = (
    Step("all servers", _LIST),
    Step("the first page of servers", f"{_LIST}?limit=2&name=-[12]$", mixed=True,
         keep={"marker": "servers.0.id"}),
    Step("the last page of servers", f"{_LIST}?limit=2&name=-[12]$&marker={{marker}}", mixed=True),
    Step("a page of servers that is just full", f"{_LIST}?limit=3"),
    Step("a page of servers after one that is gone", f"{_LIST}?marker={MISSING}"),
    Step("a server by its name", f"{_LIST}?name={pattern([f'{PREFIX}-1'])}"),
    Step("servers by their names",
         f"{_LIST}?name={pattern([f'{PREFIX}-1', f'{PREFIX}-3', 'recorded.2'])}"),
    Step("servers by a name that none has", f"{_LIST}?name=^nobody$"),
    Step("a server", "GET nova /servers/{server1}"),
    Step("a server that is stopped", "GET nova /servers/{server3}"),
    Step("a server that is not there", f"GET nova /servers/{MISSING}"),
    Step("a flavor", "GET nova /flavors/{flavor}"),
    Step("a flavor that is not there", f"GET nova /flavors/{MISSING}"),
)  # fmt: skip

_PAIR = [{"ip_address": "10.244.1.0/24"}]
_IF_CHANGED = {"If-Match": "revision_number={revision}"}


def _set_port(name: str, port: str, pairs: Any, **more: Any) -> Step:
    body = {"port": {"allowed_address_pairs": pairs}}
    return Step(name, f"PUT neutron /ports/{port}", body, **more)


_PORT = (
    Step("ports of servers", f"{_PORTS}&device_id={{server1}}&device_id={{server2}}"),
    Step("ports by their ids", f"{_PORTS}&id={{port1}}&id={{port2}}&id={MISSING}"),
    Step("ports by addresses",
         f"{_PORTS}&fixed_ips=ip_address={{address1}}&fixed_ips=ip_address={{address2}}"),
    Step("ports of nobody", f"{_PORTS}&device_id={MISSING}"),
    Step("the first page of ports", f"{_PORTS}&limit=2&" + _query(
        device_id=("{server1}", "{server2}", "{server3}")), keep={"marker": "ports.1.id"},
        mixed=True),
    Step("the last page of ports", f"{_PORTS}&limit=2&marker={{marker}}&" + _query(
        device_id=("{server1}", "{server2}", "{server3}")), mixed=True),
    Step("a port", "GET neutron /ports/{port1}", keep={"revision": "port.revision_number"}),
    Step("a port that is not there", f"GET neutron /ports/{MISSING}"),
    _set_port("a pair for a port", "{port1}", _PAIR, headers=_IF_CHANGED),
    _set_port("a pair for a port that has changed", "{port1}", [], headers=_IF_CHANGED),
    _set_port("pairs for a port that is not there", MISSING, _PAIR),
    _set_port("a pair that is no address", "{port1}", [{"ip_address": "nothing"}]),
    _set_port("the same pair twice", "{port1}", [*_PAIR, *_PAIR]),
    _set_port("more pairs than a port can have", "{port1}",
              [{"ip_address": f"10.244.{n}.0/24"} for n in range(200)]),
    _set_port("no pairs", "{port1}", []),
)  # fmt: skip

_GROUPS_AT = "neutron /security-groups"
_RULES_AT = "neutron /security-group-rules"
_GROUP = {"name": "lb-sg-u-shop-web", "description": "Security Group for shop/web"}


def _rule(port: int, prefix: str = "10.1.0.0/16", **more: Any) -> Any:
    return {
        "security_group_id": "{group}", "direction": "ingress", "ethertype": "IPv4",
        "protocol": "tcp", "port_range_min": port, "port_range_max": port,
        "remote_ip_prefix": prefix, **more,
    }  # fmt: skip


def _add_rules(name: str, *rules: Any) -> Step:
    return Step(name, f"POST {_RULES_AT}", {"security_group_rules": rules})


def _set_groups(name: str, *groups: str, **more: Any) -> Step:
    body = {"port": {"security_groups": groups}}
    return Step(name, "PUT neutron /ports/{port1}", body, **more)


_TAGGED = {"tags": ["proreus/cluster-uid=c", "proreus/service-uid=u"]}
_GROUPS = (
    Step("a security group", f"POST {_GROUPS_AT}", {"security_group": _GROUP},
         keep={"group": "security_group.id"}),
    Step("more security groups than the quota allows", f"POST {_GROUPS_AT}",
         {"security_group": _GROUP}),
    Step("tags for a security group", f"PUT {_GROUPS_AT}/{{group}}/tags", _TAGGED),
    Step("tags for a security group that is not there", f"PUT {_GROUPS_AT}/{MISSING}/tags",
         _TAGGED),
    _add_rules("rules", _rule(30080), _rule(30081)),
    _add_rules("a rule that is there", _rule(30080)),
    _add_rules("a rule that is there, and another", _rule(30082), _rule(30081)),
    _add_rules("a rule for a network that is none", _rule(30083, "nothing")),
    _add_rules("a rule for a network of another family", _rule(30083, "2001:db8::/32")),
    _add_rules("a rule of a group that is not there", _rule(30083, security_group_id=MISSING)),
    Step("security groups by their name", f"GET {_GROUPS_AT}?name={_GROUP['name']}",
         keep={"rule": "security_groups.0.security_group_rules.0.id"}),
    Step("security groups by a tag", f"GET {_GROUPS_AT}?tags={_TAGGED['tags'][0]}"),
    Step("security groups by a tag that none has", f"GET {_GROUPS_AT}?tags=nobody"),
    Step("no rule any more", f"DELETE {_RULES_AT}/{{rule}}"),
    Step("no rule that is gone", f"DELETE {_RULES_AT}/{{rule}}"),
    Step("a port before it has a group", "GET neutron /ports/{port1}",
         keep={"revision": "port.revision_number", "default": "port.security_groups.0"}),
    _set_groups("a group for a port", "{default}", "{group}", headers=_IF_CHANGED),
    _set_groups("no group for a port that has changed", "{default}", headers=_IF_CHANGED),
    _set_groups("a group for a port that is not there", "{default}", MISSING),
    Step("the ports of a group", f"{_PORTS}&security_groups={{group}}"),
    Step("no security group that a port has", f"DELETE {_GROUPS_AT}/{{group}}"),
    _set_groups("no group for a port", "{default}"),
    Step("no security group any more", f"DELETE {_GROUPS_AT}/{{group}}"),
    Step("no security group that is gone", f"DELETE {_GROUPS_AT}/{{group}}"),
    Step("a collection that is not there", "GET neutron /nothing"),
)  # fmt: skip


def _routes(name: str, verb: str, *pairs: tuple[str, str], **more: Any) -> Step:
    given = [{"destination": destination, "nexthop": nexthop} for destination, nexthop in pairs]
    return Step(
        name, f"PUT neutron /routers/{{router}}{verb}", {"router": {"routes": given}}, **more
    )


_ONE = ("10.244.1.0/24", "{address1}")
_TWO = ("10.244.2.0/24", "{address2}")
_FAR = ("10.244.3.0/24", "192.0.2.1")
_ROUTER = (
    Step("the extension for routes", f"GET neutron /extensions/{ATOMIC}"),
    Step("an extension that is not there", "GET neutron /extensions/nothing"),
    Step("a router", "GET neutron /routers/{router}", keep={"revision": "router.revision_number"}),
    Step("a router that is not there", f"GET neutron /routers/{MISSING}"),
    _routes("a route", "/add_extraroutes", _ONE),
    _routes("a route that is there, and another", "/add_extraroutes", _ONE, _TWO),
    _routes("a route to the same by another way", "/add_extraroutes", (_ONE[0], _TWO[1])),
    _routes("a route that nothing leads to", "/add_extraroutes", _FAR),
    _routes("a route that is none", "/add_extraroutes", ("nothing", "{address1}")),
    _routes("more routes than a router can have", "/add_extraroutes",
            *((f"10.245.{n}.0/24", "{address1}") for n in range(250))),
    _routes("a route less", "/remove_extraroutes", _TWO),
    _routes("a route less that is not there", "/remove_extraroutes", _TWO),
    _routes("routes of a router that has changed", "", _TWO, headers=_IF_CHANGED),
    Step("a router with routes", "GET neutron /routers/{router}",
         keep={"revision": "router.revision_number"}),
    _routes("all routes at once", "", _TWO, headers=_IF_CHANGED),
    _routes("all routes at once with one that nothing leads to", "", _FAR),
    _routes("no routes", ""),
    Step("a route on a router that is not there", f"PUT neutron /routers/{MISSING}/add_extraroutes",
         {"router": {"routes": []}}),
)  # fmt: skip

_NETWORK = (
    Step("external networks", f"GET neutron /networks?router:external=true&{_query(fields=_NAMES)}"),
    Step("networks by their ids",
         f"GET neutron /networks?{_query(fields=_NAMES)}&id={{network}}&id={MISSING}"),
    Step("a network with its tags",
         f"GET neutron /networks?id={{network}}&{_query(fields=(*_NAMES, 'tags'))}"),
    Step("a network that is not there",
         f"GET neutron /networks?id={MISSING}&{_query(fields=(*_NAMES, 'tags'))}"),
    Step("a subnet of IPv4", "GET neutron /subnets/{subnet4}"),
    Step("a subnet of IPv6", "GET neutron /subnets/{subnet6}"),
    Step("a subnet that is not there", f"GET neutron /subnets/{MISSING}"),
    Step("the subnets of a network", "GET neutron /subnets?network_id={network}"),
    Step("the subnets of an external network, which are hidden",
         "GET neutron /subnets?network_id={public}"),
)  # fmt: skip

_FLOATING = "neutron /floatingips"
_PROOF = "Floating IP for Kubernetes external service shop/web from cluster test (u c)"
_KEPT = f"{_PROOF[:-1]} keep)"
_DESCRIBED = "&".join(f"description={one}" for one in (_PROOF, _KEPT)).replace(" ", "%20")


def _give(name: str, /, *, keep: Mapping[str, str] | None = None, **fields: str) -> Step:
    body = {"floatingip": {"floating_network_id": "{public}", "description": _PROOF, **fields}}
    return Step(name, f"POST {_FLOATING}", body, keep=keep or {})


def _move(name: str, id_: str, port: str | None) -> Step:
    return Step(name, f"PUT {_FLOATING}/{id_}", {"floatingip": {"port_id": port}})


_ADDRESSES = (
    _give("a floating address", port_id="{vip_port}",
          keep={"floating": "floatingip.id", "floating_address": "floatingip.floating_ip_address"}),
    Step("the floating address of a port", f"GET {_FLOATING}?port_id={{vip_port}}"),
    Step("floating addresses by what is written on them",
         f"GET {_FLOATING}?description={_PROOF.replace(' ', '%20')}"),
    Step("floating addresses by one of two texts", f"GET {_FLOATING}?{_DESCRIBED}"),
    Step("another text on a floating address", f"PUT {_FLOATING}/{{floating}}",
         {"floatingip": {"description": _KEPT}}),
    Step("floating addresses by the second of two texts", f"GET {_FLOATING}?{_DESCRIBED}"),
    Step("a floating address by itself", f"GET {_FLOATING}?floating_ip_address={{floating_address}}"),
    Step("floating addresses of a port without", f"GET {_FLOATING}?port_id={MISSING}"),
    _give("a second floating address for the same port", port_id="{vip_port}"),
    _give("a floating address for a port that is not there", port_id=MISSING),
    _give("a floating address of a network that is not external",
          floating_network_id="{network}"),
    _give("a floating address of a subnet that is not there", subnet_id=MISSING),
    _give("a certain floating address, which is not allowed", floating_ip_address="203.0.113.77"),
    _give("a floating address for nobody", subnet_id="{public_subnet}",
          keep={"loose": "floatingip.id"}),
    _give("more floating addresses than the quota allows"),
    _move("a floating address for a port that has one", "{loose}", "{vip_port}"),
    _move("a floating address for no port any more", "{floating}", None),
    _move("a floating address for another port", "{loose}", "{vip_port}"),
    _move("a floating address that is not there", MISSING, "{vip_port}"),
    *(Step(f"no floating address any more: {name}", f"DELETE {_FLOATING}/{id_}")
      for name, id_ in (("bound", "{loose}"), ("loose", "{floating}"), ("gone", "{floating}"))),
)  # fmt: skip

_LB = "octavia /lbaas/loadbalancers"
_TAGS = ["proreus/cluster-uid=c", "proreus/service-uid=u"]


def _member(address: str, **more: Any) -> Any:
    return {"address": address, "protocol_port": 30080, "subnet_id": "{subnet4}", **more}


_MONITOR = {"name": "monitor", "type": "TCP", "tags": _TAGS, "delay": 5, "timeout": 3,
            "max_retries": 1, "max_retries_down": 3}  # fmt: skip
_POOL = {"name": "pool", "protocol": "TCP", "tags": _TAGS, "lb_algorithm": "ROUND_ROBIN"}
_LISTENER = {
    "name": "listener", "protocol": "TCP", "protocol_port": 80, "tags": _TAGS,
    "connection_limit": -1, "timeout_client_data": 50000, "timeout_member_connect": 5000,
    "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
}  # fmt: skip
_WHOLE = {**_LISTENER, "default_pool": {
    **_POOL, "members": [_member("10.1.0.11", name="n1")], "healthmonitor": _MONITOR,
}}  # fmt: skip


def _balancer(name: str, /, *, settles: str = "", **fields: Any) -> Step:
    body = {
        "name": PREFIX, "description": "Kubernetes external service shop/web", "tags": _TAGS,
        "provider": "{provider}", "vip_subnet_id": "{subnet4}", **fields,
    }  # fmt: skip
    keep = {settles: "loadbalancer.id"} if settles else {}
    if settles == "balancer":
        keep |= {"vip_port": "loadbalancer.vip_port_id"}
    return Step(name, f"POST {_LB}", {"loadbalancer": body}, keep=keep, settles=settles)


_BALANCERS = (
    _balancer("a load balancer", settles="balancer"),
    Step("a load balancer that is there", f"GET {_LB}/{{balancer}}"),
    Step("a load balancer that is not there", f"GET {_LB}/{MISSING}"),
    _balancer("a load balancer in a subnet that is not there", vip_subnet_id=MISSING),
    _balancer("a load balancer of a provider that is not there", provider="nobody"),
    _balancer("a load balancer without a place", vip_subnet_id=None),
    _balancer("a load balancer with a name that is too long", name="x" * 256),
    _balancer("a load balancer with an address of elsewhere", vip_address="198.51.100.1"),
    _balancer("a load balancer of a flavor that is not there", flavor_id=MISSING),
    _balancer("a load balancer with two listeners on one port",
              listeners=[_LISTENER, {**_LISTENER, "name": "other"}]),
    _balancer("a load balancer with all its parts", settles="whole", name=f"{PREFIX}-whole",
              tags=[_TAGS[0], "proreus/service-uid=w"],
              listeners=[_WHOLE, {"name": "udp", "protocol": "UDP", "protocol_port": 80,
                                  "allowed_cidrs": ["192.0.2.0/24"]}]),
    _balancer("more load balancers than the quota allows"),
    Step("load balancers by two tags", f"GET {_LB}?tags={_TAGS[0]},{_TAGS[1]}"),
    Step("load balancers by the tag of all", f"GET {_LB}?tags={_TAGS[0]}"),
    Step("load balancers by a tag that none has", f"GET {_LB}?tags=nobody"),
    Step("load balancers by one of several tags", f"GET {_LB}?tags-any=nobody,{_TAGS[1]},others"),
    Step("the load balancer at a port", f"GET {_LB}?vip_port_id={{vip_port}}"),
    Step("load balancers by their name", f"GET {_LB}?name={PREFIX}"),
    Step("the first page of load balancers", f"GET {_LB}?limit=1",
         keep={"marker": "loadbalancers.0.id"}),
    Step("the last page of load balancers", f"GET {_LB}?limit=1&marker={{marker}}"),
    Step("a page of load balancers after one that is gone", f"GET {_LB}?marker={MISSING}"),
    Step("other tags for a load balancer", f"PUT {_LB}/{{balancer}}",
         {"loadbalancer": {"tags": [*_TAGS, "kube_service_test_shop_web"]}}, settles="balancer"),
    Step("other tags for a load balancer that is not there", f"PUT {_LB}/{MISSING}",
         {"loadbalancer": {"tags": _TAGS}}),
    Step("a change of what stays", f"PUT {_LB}/{{balancer}}",
         {"loadbalancer": {"vip_subnet_id": "{subnet6}"}}),
    Step("a change of a load balancer that Octavia works on", f"PUT {_LB}/{{balancer}}",
         {"loadbalancer": {"tags": _TAGS}}, busy="balancer"),
    Step("a listener for a load balancer that Octavia works on", "POST octavia /lbaas/listeners",
         {"listener": {**_LISTENER, "loadbalancer_id": "{balancer}"}}, busy="balancer"),
    Step("no load balancer while Octavia works on it", f"DELETE {_LB}/{{balancer}}",
         busy="balancer"),
)  # fmt: skip

_LISTENERS_AT = "octavia /lbaas/listeners"
_POOLS_AT = "octavia /lbaas/pools"
_MONITORS_AT = "octavia /lbaas/healthmonitors"


def _make_listener(name: str, /, *, kept: str = "", **fields: Any) -> Step:
    body = {**_LISTENER, "loadbalancer_id": "{balancer}", **fields}
    keep = {kept: "listener.id"} if kept else {}
    settles = "balancer" if kept else ""
    return Step(name, f"POST {_LISTENERS_AT}", {"listener": body}, keep=keep, settles=settles)


def _change(kind: str, name: str, id_: str, /, *, settles: bool = False, **fields: Any) -> Step:
    path = f"PUT octavia /lbaas/{kind}s/{id_}"
    return Step(name, path, {kind: fields}, settles="balancer" if settles else "")


_LISTENERS = (
    _make_listener("a listener", kept="listener"),
    _make_listener("a listener on a port that is taken"),
    _make_listener("a listener of another transport", kept="udp", name="udp", protocol="UDP",
                   **dict.fromkeys(("timeout_client_data", "timeout_member_connect",
                                    "timeout_member_data", "timeout_tcp_inspect"))),
    _make_listener("a listener of no protocol", protocol="NOTHING", protocol_port=81),
    _make_listener("a listener on a port that is none", protocol_port=70000),
    _make_listener("a listener with ranges that are none", protocol_port=81,
                   allowed_cidrs=["nothing"]),
    _make_listener("a listener with ranges of another family", protocol_port=81,
                   allowed_cidrs=["2001:db8::/32"]),
    _make_listener("a listener with secrets that are not there", protocol_port=443,
                   protocol="TERMINATED_HTTPS"),
    _make_listener("a listener of a load balancer that is not there", loadbalancer_id=MISSING),
    Step("the listeners of a load balancer",
         f"GET {_LISTENERS_AT}?load_balancer_id={{balancer}}"),
    Step("a listener by its id", f"GET {_LISTENERS_AT}/{{listener}}"),
    Step("a listener that is not there", f"GET {_LISTENERS_AT}/{MISSING}"),
    _change("listener", "other tags and ranges for a listener", "{listener}", settles=True,
            tags=[*_TAGS, "more"], allowed_cidrs=["192.0.2.0/24"], connection_limit=100),
    _change("listener", "no ranges for a listener any more", "{listener}", settles=True,
            allowed_cidrs=None),
    _change("listener", "ranges that are none", "{listener}", allowed_cidrs=["nothing"]),
    _change("listener", "a change of a listener that is not there", MISSING, tags=_TAGS),
)  # fmt: skip


def _make_pool(name: str, /, *, kept: bool = False, **fields: Any) -> Step:
    body = {**_POOL, "listener_id": "{listener}", **fields}
    keep = {"pool": "pool.id"} if kept else {}
    settles = "balancer" if kept else ""
    return Step(name, f"POST {_POOLS_AT}", {"pool": body}, keep=keep, settles=settles)


def _make_monitor(name: str, /, *, kept: bool = False, **fields: Any) -> Step:
    body = {**_MONITOR, "pool_id": "{pool}", **fields}
    keep = {"monitor": "healthmonitor.id"} if kept else {}
    settles = "balancer" if kept else ""
    body = {"healthmonitor": body}
    return Step(name, f"POST {_MONITORS_AT}", body, keep=keep, settles=settles)


def _set_members(name: str, pool: str, *members: Any, settles: bool = False) -> Step:
    path = f"PUT {_POOLS_AT}/{pool}/members"
    return Step(name, path, {"members": members}, settles="balancer" if settles else "")


_POOLS = (
    _make_pool("a pool", kept=True),
    _make_pool("a second pool for a listener"),
    _make_pool("a pool of an algorithm that is none", lb_algorithm="NOTHING"),
    _make_pool("a pool for a listener of another protocol", listener_id="{udp}"),
    _make_pool("a pool for a listener that is not there", listener_id=MISSING),
    Step("the pools of a load balancer", f"GET {_POOLS_AT}?loadbalancer_id={{balancer}}"),
    Step("a pool that is not there", f"GET {_POOLS_AT}/{MISSING}"),
    _change("pool", "sessions that stay", "{pool}", settles=True,
            session_persistence={"type": "SOURCE_IP"}),
    _change("pool", "sessions that stay no more", "{pool}", settles=True,
            session_persistence=None),
    _change("pool", "a change of a pool that is not there", MISSING, tags=_TAGS),
    Step("a pool by its id", f"GET {_POOLS_AT}/{{pool}}"),
    _set_members("members", "{pool}", _member("10.1.0.11", name="n1"),
                 _member("10.1.0.12", name="n2", monitor_port=30100), settles=True),
    Step("the members of a pool", f"GET {_POOLS_AT}/{{pool}}/members"),
    _set_members("fewer members", "{pool}", _member("10.1.0.11", name="n1"), settles=True),
    _set_members("a member twice", "{pool}", *(_member("10.1.0.13") for _ in range(2))),
    _set_members("a member that is no address", "{pool}", _member("nothing")),
    _set_members("a member in a subnet that is not there", "{pool}",
                 _member("10.1.0.13", subnet_id=MISSING)),
    _set_members("members of a pool that is not there", MISSING, _member("10.1.0.11")),
    Step("the members of a pool that is not there", f"GET {_POOLS_AT}/{MISSING}/members"),
    _set_members("no members", "{pool}", settles=True),
    Step("the members of a pool without", f"GET {_POOLS_AT}/{{pool}}/members"),
    _make_monitor("a monitor", kept=True),
    _make_monitor("a second monitor for a pool"),
    _make_monitor("a monitor of a type that is none", type="NOTHING"),
    _make_monitor("a monitor for a pool that is not there", pool_id=MISSING),
    Step("a monitor by its id", f"GET {_MONITORS_AT}/{{monitor}}"),
    Step("a monitor that is not there", f"GET {_MONITORS_AT}/{MISSING}"),
    Step("a pool with a monitor", f"GET {_POOLS_AT}/{{pool}}"),
    _change("healthmonitor", "another pause of a monitor", "{monitor}", settles=True, delay=10,
            timeout=4, max_retries=2, max_retries_down=4),
    _change("healthmonitor", "a change of a monitor that is not there", MISSING, delay=10),
)  # fmt: skip


def _drop(name: str, path: str, *, settles: bool = False) -> Step:
    return Step(name, f"DELETE octavia /lbaas/{path}", settles="balancer" if settles else "")


_END = (
    Step("no load balancer that has parts", f"DELETE {_LB}/{{balancer}}"),
    _drop("no monitor any more", "healthmonitors/{monitor}", settles=True),
    _drop("no monitor that is gone", "healthmonitors/{monitor}"),
    Step("a pool without a monitor", f"GET {_POOLS_AT}/{{pool}}"),
    _drop("no pool any more", "pools/{pool}", settles=True),
    _drop("no pool that is gone", "pools/{pool}"),
    _drop("no listener any more", "listeners/{listener}", settles=True),
    _drop("no listener that is gone", "listeners/{listener}"),
    _drop("no listener of UDP any more", "listeners/{udp}", settles=True),
    _drop("no load balancer any more", "loadbalancers/{balancer}", settles=True),
    Step("the parts of a load balancer that was made whole",
         f"GET {_LISTENERS_AT}?load_balancer_id={{whole}}"),
    Step("the pools of a load balancer that was made whole",
         f"GET {_POOLS_AT}?loadbalancer_id={{whole}}"),
    Step("no load balancer with all its parts", f"DELETE {_LB}/{{whole}}?cascade=true",
         settles="whole"),
    Step("no load balancer that is gone", f"DELETE {_LB}/{{whole}}?cascade=true"),
    Step("no load balancers", f"GET {_LB}"),
    Step("a floating address whose load balancer is gone", f"GET {_FLOATING}?port_id={{vip_port}}"),
)  # fmt: skip

SCRIPT: Final = (
    *_KEYSTONE,
    *_NOVA,
    *_PORT,
    *_GROUPS,
    *_ROUTER,
    *_NETWORK,
    *_BALANCERS,
    *_ADDRESSES,
    *_LISTENERS,
    *_POOLS,
    *_END,
)
