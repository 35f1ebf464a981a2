"""What is done next to a load balancer of NSX-T: a table of situations, and that it ends."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.steps import foresee
from proreus.providers.vsphere.nsxt.balancing import documents, owners
from proreus.providers.vsphere.nsxt.balancing.documents import References, written
from proreus.providers.vsphere.nsxt.balancing.parts import (
    NEW,
    Desired,
    Observed,
    Part,
    Port,
    Service,
    group_id,
)
from proreus.providers.vsphere.nsxt.balancing.plan import deletion, plan, withdrawal
from proreus.providers.vsphere.nsxt.balancing.shapes import desired_shape, observed_shape
from proreus.providers.vsphere.nsxt.balancing.steps import Delete, Put, Step, Wait
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    GROUPS,
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
    SERVICES,
    Place,
)

REF = LoadBalancerRef(ClusterIdentity("test", "c-uid"), "shop", "web", "s-uid", "a")
OWNER = "vsphere-cloud-controller-manager"
TAGS = owners.service_tags(REF, OWNER, {"site": "a"})
CLUSTER_TAGS = owners.cluster_tags(REF.cluster, OWNER, {})
GATEWAY = "/infra/tier-1s/t1"
TCP_CHECK = {"resource_type": "LBTcpMonitorProfile", "monitor_port": 30080}
HTTP_CHECK = {
    "resource_type": "LBHttpMonitorProfile", "monitor_port": 30999, "request_url": "/healthz",
}  # fmt: skip
WEB = Port("TCP", 80, 30080, "/infra/lb-app-profiles/tcp", TCP_CHECK)
DNS = Port("UDP", 53, 30053, "/infra/lb-app-profiles/udp")
DESIRED = Desired(
    REF, TAGS, "default", "pool-1", (WEB, DNS), {"10.0.0.1": "n1", "10.0.0.2": "n2"},
    gateway=GATEWAY, seed="0",
)  # fmt: skip
ADDRESS = "192.0.2.10"
LBS = Part(Place(SERVICES), "lbs", {"id": "lbs", "connectivity_path": GATEWAY})
SERVICE = Service(LBS, is_ours=True)


def part(want: documents.Want, id_: str, **more: Any) -> Part:
    """A part as it is once it was made as wanted."""
    document = {"id": id_, "_revision": 0, **written(want, None)}
    return Part(want.place, id_, document, **more)


def whole(desired: Desired = DESIRED) -> dict[str, Part]:
    """All parts of a load balancer as desired, by short names."""
    found = {"ip": part(documents.allocation_want(desired, "pool-1", ""), "ip", address=ADDRESS)}
    if desired.affinity is not None:
        found["sticky"] = part(documents.persistence_want(desired), "sticky")
    if desired.ranges:
        found["group"] = part(documents.group_want(desired), group_id(REF))
    for port in desired.ports:
        monitor = ""
        if port.check:
            made = part(documents.monitor_want(desired, port), f"m{port.port}")
            found[made.id], monitor = made, made.path
        pool = part(documents.pool_want(desired, port, monitor), f"p{port.port}")
        found[pool.id] = pool
        to = References(
            LBS.path, ADDRESS, pool.path,
            found["sticky"].path if "sticky" in found else "",
            found["group"].path if "group" in found else "",
        )  # fmt: skip
        want = documents.with_class(
            documents.server_want(desired, port, to), desired.class_name, "pool-1"
        )
        found[f"v{port.port}"] = part(want, f"v{port.port}")
    return found


def observed(*left_out: str, service: Service | None = SERVICE, **changed: Part) -> Observed:
    """The load balancer as desired, without some parts, and with others."""
    parts = {key: one for key, one in (whole() | changed).items() if key not in left_out}
    return Observed(service, tuple(parts.values()))


def but(key: str, of: Mapping[str, Part] | None = None, **fields: Any) -> Part:
    """A part whose document has other fields."""
    one = (whole() if of is None else of)[key]
    return replace(one, document={**one.document, **fields})


def untagged(one: Part, **more: Any) -> Part:
    """A part as the official manager leaves it: with its own tags only."""
    tags = [tag for tag in one.document["tags"] if not tag["scope"].startswith("proreus/")]
    return replace(one, document={**one.document, "tags": tags}, is_marked=False, **more)


SHORT = {
    SERVICES: "service", SERVERS: "server", POOLS: "pool", MONITORS: "monitor",
    PERSISTENCE: "profile", GROUPS: "group", ALLOCATIONS: "address",
}  # fmt: skip


def named(steps: tuple[Step, ...], before: Observed) -> list[str]:
    """What steps do, in words: + makes, ~ changes, - deletes."""
    ids = {(one.kind, one.id) for one in before.parts}
    found = []
    for step in steps:
        call = step.call
        if isinstance(call, Wait):
            found.append("wait")
        elif isinstance(call, Delete):
            found.append(f"- {SHORT[call.place.kind]} {call.id}")
        elif (call.place.kind, call.id) in ids:
            found.append(f"~ {SHORT[call.place.kind]} {call.id}")
        else:
            keys = [one["tag"] for one in call.document["tags"] if one["scope"] == "port"]
            found.append(" ".join(("+", SHORT[call.place.kind], *keys)))
    return found


UNKNOWN = replace(whole()["ip"], address="")
STICKY = replace(DESIRED, affinity=600)
GUARDED = replace(DESIRED, ranges=("198.51.100.0/24",))
LOCAL = replace(DESIRED, ports=(replace(WEB, check=HTTP_CHECK), replace(DNS, check=HTTP_CHECK)))
OTHER_IP = replace(whole()["ip"], id="ip2", address="192.0.2.11")
FAILED = replace(whole()["ip"], id="ip3", address="", failure="the pool is exhausted")
NOTHING = Observed()


@pytest.mark.parametrize(
    ("what", "desired", "there", "steps"),
    [
        ("as desired", DESIRED, observed(), []),
        ("nothing is there", DESIRED, NOTHING, ["+ service", "+ address", "+ monitor TCP/80"]),
        ("a service of somebody else is there", DESIRED, Observed(Service(LBS)),
         ["+ address", "+ monitor TCP/80"]),
        ("all that is shared is wanted", replace(STICKY, ranges=GUARDED.ranges), Observed(SERVICE),
         ["+ address", "+ monitor TCP/80", "+ profile", "+ group"]),
        ("the address is not known yet", DESIRED, Observed(SERVICE, (UNKNOWN, whole()["m80"])),
         ["wait"]),
        ("pools come after monitors", DESIRED, Observed(SERVICE, (whole()["ip"], whole()["m80"])),
         ["+ pool TCP/80", "+ pool UDP/53"]),
        ("servers come last", DESIRED, observed("v80", "v53"), ["+ server TCP/80", "+ server UDP/53"]),
        ("marks come first", DESIRED,
         observed("m80", v80=untagged(whole()["v80"]), p80=untagged(whole()["p80"])),
         ["~ server v80"]),
        ("then the marks of other parts", DESIRED, observed("m80", p80=untagged(whole()["p80"])),
         ["~ pool p80"]),
        ("a host is new", replace(DESIRED, members={**DESIRED.members, "10.0.0.3": "n3"}),
         observed(), ["~ pool p80", "~ pool p53"]),
        ("a host is gone", replace(DESIRED, members={"10.0.0.1": "n1"}), observed(),
         ["~ pool p80", "~ pool p53"]),
        ("a node port is another", replace(DESIRED, ports=(replace(WEB, node_port=30081, check={
            **TCP_CHECK, "monitor_port": 30081}), DNS)), observed(), ["~ monitor m80"]),
        ("the server follows", replace(DESIRED, ports=(replace(WEB, node_port=30081), DNS)),
         observed(), ["~ server v80"]),
        ("hosts are to see clients", replace(DESIRED, snat=False), observed(),
         ["~ pool p80", "~ pool p53"]),
        ("the profile is another", replace(DESIRED, ports=(replace(WEB, profile="/x"), DNS)),
         observed(), ["~ server v80"]),
        ("a port is gone", replace(DESIRED, ports=(WEB,)), observed(), ["- server v53"]),
        ("its pool goes after it", replace(DESIRED, ports=(WEB,)), observed("v53"), ["- pool p53"]),
        ("the health check is another", LOCAL, observed(),
         ["+ monitor TCP/80", "+ monitor UDP/53"]),
        ("a monitor that is left over goes last", replace(DESIRED, ports=(
            replace(WEB, check=None), DNS)), observed(p80=but("p80", active_monitor_paths=[])),
         ["- monitor m80"]),
        ("clients are to stay with a host", STICKY, observed(), ["+ profile"]),
        ("the servers follow that", STICKY, observed(sticky=whole(STICKY)["sticky"]),
         ["~ server v80", "~ server v53"]),
        ("for a while longer", replace(STICKY, affinity=601), Observed(
            SERVICE, tuple(whole(STICKY).values())), ["~ profile sticky"]),
        ("not any more", DESIRED, Observed(SERVICE, tuple(whole(STICKY).values())),
         ["~ server v80", "~ server v53"]),
        ("then the profile goes", DESIRED, observed(sticky=whole(STICKY)["sticky"]),
         ["- profile sticky"]),
        ("not all may come in", GUARDED, observed(), ["+ group"]),
        ("the servers follow that, too", GUARDED, observed(group=whole(GUARDED)["group"]),
         ["~ server v80", "~ server v53"]),
        ("others may come in", replace(GUARDED, ranges=("203.0.113.0/24",)),
         Observed(SERVICE, tuple(whole(GUARDED).values())), [f"~ group {group_id(REF)}"]),
        ("all may come in", DESIRED, Observed(SERVICE, tuple(whole(GUARDED).values())),
         ["~ server v80", "~ server v53"]),
        ("the group stays for another time", DESIRED, observed(group=whole(GUARDED)["group"]), []),
        ("an access list that is off does not matter", DESIRED,
         observed(v80=but("v80", access_list_control={"enabled": False, "action": "DROP"})), []),
        ("somebody has closed it", DESIRED, observed(
            v80=but("v80", access_list_control={"enabled": True, "action": "DROP"})),
         ["~ server v80"]),
        ("somebody has turned it off", DESIRED, observed(v80=but("v80", enabled=False)),
         ["~ server v80"]),
        ("somebody has deleted the pool", DESIRED, observed("p80"), ["+ pool TCP/80"]),
        ("and the server with it", DESIRED, observed("p80", "v80"), ["+ pool TCP/80"]),
        ("a server is made anew at the same address", DESIRED, observed("v80"),
         ["+ server TCP/80"]),
        ("the service is another", DESIRED, observed(service=Service(replace(LBS, id="new"))),
         ["~ server v80", "~ server v53"]),
        ("an address without an allocation is claimed again", DESIRED, observed("ip"),
         ["+ address"]),
        ("after all else", replace(DESIRED, members={}), observed("ip"),
         ["~ pool p80", "~ pool p53"]),
        ("of an allocation nothing is told now", DESIRED, observed(ip=UNKNOWN), ["wait"]),
        ("nor of another one, and either may be that of the address", DESIRED,
         observed(ip=UNKNOWN, ip2=replace(UNKNOWN, id="ip2")), ["wait"]),
        ("one that claims it in vain tells nothing of that", DESIRED,
         observed(ip=UNKNOWN, ip3=replace(FAILED, address=ADDRESS)), []),
        ("that of the address is known", DESIRED, observed(ip2=replace(UNKNOWN, id="ip2")),
         ["- address ip2"]),
        ("two addresses are allocated", DESIRED, observed(ip2=OTHER_IP), ["- address ip2"]),
        ("it is written otherwise", replace(DESIRED, ports=(DNS,), family="IPv6"), Observed(
            SERVICE, (replace(whole()["ip"], address="fd00:0:0::1"), whole()["p53"],
                      but("v53", ip_address="fd00::1"))), []),
        ("an address that nothing has is used", DESIRED, Observed(SERVICE, (
            OTHER_IP, whole()["m80"], whole()["p80"], whole()["p53"])),
         ["+ server TCP/80", "+ server UDP/53"]),
        ("an allocation that fails goes at once", DESIRED, Observed(SERVICE, (FAILED,)),
         ["- address ip3"]),
        ("not that of an address in use", DESIRED, observed("ip", ip3=FAILED), ["wait"]),
        ("unless there is another one", DESIRED, observed(ip3=FAILED), ["- address ip3"]),
        ("a server for other ports is not ours to keep", DESIRED,
         observed(v80=but("v80", ports=["80", "81"])), ["- server v80"]),
        ("of two servers one stays", DESIRED, observed(v81=replace(whole()["v80"], id="v81")),
         ["- server v81"]),
        ("the pool that is in use stays", DESIRED,
         observed(p0=replace(whole()["p80"], id="p0")), ["- pool p0"]),
        ("the monitor that is in use stays", DESIRED,
         observed(m0=replace(whole()["m80"], id="m0")), ["- monitor m0"]),
        ("the tags are others", replace(DESIRED, tags={**TAGS, "site": "b"}), observed(),
         ["~ monitor m80"]),
    ],
)  # fmt: skip
def test_what_is_done_next(what: str, desired: Desired, there: Observed, steps: list[str]) -> None:
    assert named(plan(desired, there, CLUSTER_TAGS), there) == steps, what


@pytest.mark.parametrize(
    ("what", "there", "steps"),
    [
        ("nothing is left", NOTHING, []),
        ("servers go first", observed(), ["- server v80", "- server v53"]),
        ("then pools", observed("v80", "v53"), ["- pool p80", "- pool p53"]),
        ("then the rest", observed("v80", "v53", "p80", "p53"), ["- address ip", "- monitor m80"]),
        ("the service goes with the last one", Observed(SERVICE), ["- service lbs"]),
        ("not while others are on it", Observed(replace(SERVICE, users=1)), []),
        ("nor if somebody else has made it", Observed(Service(LBS)), []),
    ],
)  # fmt: skip
def test_how_it_is_deleted(what: str, there: Observed, steps: list[str]) -> None:
    assert named(deletion(there), there) == steps, what


def test_what_is_proven_by_the_address_gets_marks_before_that_is_withdrawn() -> None:
    there = observed(v80=untagged(whole()["v80"]), ip=untagged(whole()["ip"]))
    assert named(withdrawal(there, TAGS), there) == ["~ server v80"]
    there = observed(ip=untagged(whole()["ip"]))
    assert named(withdrawal(there, TAGS), there) == ["~ address ip"]
    assert withdrawal(observed(), TAGS) == ()


def test_a_change_keeps_what_others_have_set() -> None:
    member = {"ip_address": "10.0.0.1", "admin_state": "GRACEFUL_DISABLED", "weight": 5}
    pool = but("p80", algorithm="LEAST_CONNECTION", members=[member], _revision=7)
    pool.document["tags"].append({"scope": "team", "tag": "blue"})
    (step,) = plan(DESIRED, observed(p80=pool), CLUSTER_TAGS)
    assert isinstance(step.call, Put)
    sent = step.call.document
    assert (sent["algorithm"], sent["_revision"]) == ("LEAST_CONNECTION", 7)
    assert sent["members"][0] == member
    assert [one["ip_address"] for one in sent["members"]] == ["10.0.0.1", "10.0.0.2"]
    assert {"scope": "team", "tag": "blue"} in sent["tags"]


def test_what_is_not_wanted_any_more_is_not_sent() -> None:
    there = Observed(SERVICE, tuple(whole(replace(STICKY, ranges=GUARDED.ranges)).values()))
    for step in plan(DESIRED, there, CLUSTER_TAGS):
        assert isinstance(step.call, Put)
        assert "lb_persistence_profile_path" not in step.call.document
        assert "access_list_control" not in step.call.document


def test_a_new_server_has_the_class_and_the_pool_of_those_that_are_there() -> None:
    other = replace(DESIRED, class_name="public", pool_id="pool-2")
    (step,) = plan(other, observed("v53"), CLUSTER_TAGS)
    assert isinstance(step.call, Put)
    tags = {one["scope"]: one["tag"] for one in step.call.document["tags"]}
    assert (tags["lbclass"], tags["ippoolid"]) == ("default", "pool-1")


def test_an_address_is_claimed_again_in_the_pool_it_is_of() -> None:
    other = replace(DESIRED, pool_id="pool-2", requested="192.0.2.99")
    (step,) = plan(other, observed("ip"), CLUSTER_TAGS)
    assert isinstance(step.call, Put)
    assert step.call.place == Place(ALLOCATIONS, "pool-1")
    assert step.call.document["allocation_ip"] == ADDRESS


def test_a_requested_address_is_asked_for() -> None:
    first, *_ = plan(replace(DESIRED, requested="192.0.2.99"), Observed(SERVICE), CLUSTER_TAGS)
    assert isinstance(first.call, Put)
    assert first.call.document["allocation_ip"] == "192.0.2.99"


PARTS = st.sampled_from(
    [
        *whole().values(),
        *whole(replace(STICKY, ranges=GUARDED.ranges)).values(),
        *whole(LOCAL).values(),
        *(untagged(one) for one in whole().values()),
        OTHER_IP,
        FAILED,
        UNKNOWN,
        but("v80", ports=["8080"], enabled=False),
    ]
)
SOME = st.lists(PARTS, unique_by=lambda one: (one.kind, one.id)).map(tuple)


@given(
    st.sampled_from([DESIRED, STICKY, GUARDED, LOCAL, replace(DESIRED, ports=(DNS,))]),
    st.sampled_from([None, SERVICE, Service(LBS)]),
    SOME,
)
def test_it_ends_as_desired_from_anywhere(
    desired: Desired, service: Service | None, parts: tuple[Part, ...]
) -> None:
    _, after = foresee(
        Observed(service, parts),
        lambda there: plan(desired, there, CLUSTER_TAGS),
        lambda there, step: step.after(there),
    )
    assert plan(desired, after, CLUSTER_TAGS) == ()
    assert len(after.of(SERVERS)) == len(after.of(POOLS)) == len(desired.ports)
    assert after.address in {ADDRESS, OTHER_IP.address, NEW}
    shown = observed_shape(after.parts, owners.scopes({"site": "a"}))
    assert shown == desired_shape(desired)


@given(SOME)
def test_a_deletion_leaves_nothing(parts: tuple[Part, ...]) -> None:
    _, marked = foresee(
        Observed(SERVICE, parts),
        lambda there: withdrawal(there, TAGS),
        lambda there, step: step.after(there),
    )
    assert all(one.is_marked for one in marked.parts)
    _, after = foresee(
        marked,
        deletion,
        lambda there, step: step.after(there),
    )
    assert after == Observed()


@given(SOME)
def test_nothing_is_deleted_that_a_kept_part_refers_to(parts: tuple[Part, ...]) -> None:
    there = Observed(SERVICE, parts)
    while steps := plan(DESIRED, there, CLUSTER_TAGS):
        gone = {
            f"{one.call.place.path}/{one.call.id}" for one in steps if isinstance(one.call, Delete)
        }
        for one in steps:
            there = one.after(there)
        for server in there.of(SERVERS):
            assert server.document.get("pool_path") not in gone
        for pool in there.of(POOLS):
            assert not gone & set(pool.document.get("active_monitor_paths") or ())


def test_a_shape_is_another_if_anything_is() -> None:
    shapes = {
        desired_shape(one)
        for one in (
            DESIRED, STICKY, GUARDED, LOCAL, replace(DESIRED, snat=False),
            replace(DESIRED, members={"10.0.0.1": "n1"}), replace(DESIRED, ports=(WEB,)),
            replace(DESIRED, tags={**TAGS, "site": "b"}), replace(STICKY, affinity=601),
            replace(DESIRED, ports=(replace(WEB, node_port=1), DNS)),
            replace(DESIRED, ports=(replace(WEB, profile="/x"), DNS)),
        )
    }  # fmt: skip
    assert len(shapes) == 11
    scopes = owners.scopes({"site": "a"})
    mixed = (*whole().values(), replace(whole(STICKY)["v80"], id="v81"))
    assert observed_shape(mixed, scopes) == ""
