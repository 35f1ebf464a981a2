"""What is done next for load balancers of Azure: rounds of steps, and that they end."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import CloudError, ClusterIdentity, HostPolicy, InvalidRequest
from proreus.cloudprovider.config import read
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.steps import foresee
from proreus.kube.objects import (
    LABEL_INSTANCE_TYPE,
    LABEL_REGION,
    LABEL_ZONE,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from proreus.providers.azure.balancing import guard
from proreus.providers.azure.balancing.annotations import read_options
from proreus.providers.azure.balancing.balancers import spots
from proreus.providers.azure.balancing.claims import claims, is_reached_inside
from proreus.providers.azure.balancing.desired import Place
from proreus.providers.azure.balancing.parts import (
    Job,
    Scene,
    State,
)
from proreus.providers.azure.balancing.placement import placed
from proreus.providers.azure.balancing.plan import ingress, plan
from proreus.providers.azure.balancing.presence import named
from proreus.providers.azure.balancing.steps import (
    Join,
    Step,
    delete_address,
    delete_balancer,
    delete_link,
    join,
    join_set,
    put_address,
    put_balancer,
    put_group,
    put_link,
)
from proreus.providers.azure.config import AzureConfig
from proreus.providers.azure.graph import plan as graph
from proreus.providers.azure.ids import MachineId
from proreus.providers.azure.machines import part
from proreus.testing import objects

CLUSTER = ClusterIdentity("kubernetes", "0b5e3a1c-0000-4000-8000-000000000001")
NAME = "kubernetes"
INNER = "kubernetes-internal"
GROUP = "/subscriptions/s/resourceGroups/g/providers"
SET = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/pool"
PREFIX = "service.beta.kubernetes.io/azure-"
NSG = {
    "id": f"{GROUP}/Microsoft.Network/networkSecurityGroups/nsg",
    "properties": {"securityRules": []},
}
MODEL = {
    "id": SET,
    "properties": {
        "virtualMachineProfile": {
            "networkProfile": {
                "networkInterfaceConfigurations": [
                    {"name": "nic", "properties": {"primary": True, "ipConfigurations": [
                        {"name": "c", "properties": {"primary": True}}]}}
                ]
            }
        }
    },
}  # fmt: skip


def config(**more: Any) -> AzureConfig:
    given = {
        "subscriptionId": "s", "resourceGroup": "g", "tenantId": "t", "aadClientId": "c",
        "aadClientSecret": "x", "location": "westeurope", "vnetName": "v", "subnetName": "nodes",
        "securityGroupName": "nsg", **more,
    }  # fmt: skip
    return read(json.dumps(given), AzureConfig, source="azure.json")


def machine(number: int, *, of_set: bool = False) -> str:
    kind = "virtualMachineScaleSets/pool/virtualMachines" if of_set else "virtualMachines"
    return f"azure://{GROUP}/Microsoft.Compute/{kind}/{number}"


def id_of(provider_id: str) -> str:
    return provider_id.removeprefix("azure://").lower()


def node(number: int, *, of_set: bool = False) -> Node:
    address = (
        NodeAddress("InternalIP", f"10.0.0.{number}"),
        NodeAddress("InternalIP", f"fd00::{number}"),
    )
    return objects.node(f"n{number}", machine(number, of_set=of_set), addresses=address)


NODES = [node(1), node(2, of_set=True)]


def service(
    number: int = 1, *ports: int, labels: Mapping[str, str] | None = None, **spec: Any
) -> Service:
    annotations = {f"{PREFIX}{key.replace('_', '-')}": one for key, one in (labels or {}).items()}
    listed = tuple(ServicePort(one, f"p{one}", node_port=30000 + one) for one in ports or (80,))
    return Service(
        metadata=ObjectMeta(
            name=f"web-{number}",
            namespace="shop",
            uid=f"{number:08}-0000-4000-8000-000000000000",
            annotations=annotations,
        ),
        spec=ServiceSpec(type="LoadBalancer", ports=listed, **{"ip_families": ("IPv4",), **spec}),
    )


def job(one: Service, nodes: Iterable[Node] = NODES) -> Job:
    lb = desired_load_balancer(one, nodes, HostPolicy(), CLUSTER)
    return Job(lb.ref, lb, read_options(one))


def gone(one: Service) -> Job:
    return Job(job(one).ref, None, read_options(one))


def scene(**more: Any) -> Scene:
    nodes = {id_of(one.spec.provider_id): one.metadata.name for one in NODES}
    return Scene(Place(config(**more), CLUSTER.name), {}, nodes)


EMPTY = State({NAME: None, INNER: None}, {}, NSG, sets={SET: MODEL})


def kinds(steps: Sequence[Step]) -> list[str]:
    return [type(one.call).__name__ for one in steps]


def after(
    jobs: Sequence[Job], state: State = EMPTY, at: Scene | None = None
) -> tuple[list[Step], State]:
    """The steps until all is as desired, and what there is then."""
    place = at or scene()
    steps, found = foresee(
        state, lambda now: plan(jobs, now, place), lambda now, step: step.after(now)
    )
    assert plan(jobs, found, place) == []
    return list(steps), found


INTERNAL = {"load_balancer_internal": "true"}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([job(service())], ["PutAddress", "PutBalancer", "JoinSet", "Join", "Join", "PutGroup"]),
        ([job(service(labels=INTERNAL))], ["PutBalancer", "JoinSet", "Join", "Join"]),
        ([job(service(), ())], ["PutAddress", "PutBalancer", "PutGroup"]),
        ([gone(service())], []),
        (
            [job(service()), job(service(2)), job(service(3, labels=INTERNAL))],
            ["PutAddress", "PutAddress", "PutBalancer", "PutBalancer", "JoinSet", "Join", "Join", "PutGroup"],
        ),
    ],
)  # fmt: skip
def test_rounds_of_steps_from_nothing(jobs: Sequence[Job], expected: list[str]) -> None:
    steps, _ = after(jobs)
    assert kinds(steps) == expected


@pytest.mark.parametrize("labels", [{}, INTERNAL, {"disable_load_balancer_floating_ip": "true"}])
def test_what_was_made_goes_in_the_order_in_which_it_can(labels: Mapping[str, str]) -> None:
    one = service(labels=labels, ip_families=("IPv4", "IPv6"))
    _, made = after([job(one)])
    steps, left = after([gone(one)], made)
    found = kinds(steps)
    assert found.index("JoinSet") < found.index("Join") < found.index("DeleteBalancer")
    if not labels.get("load_balancer_internal"):
        assert found[-2:] == ["DeleteAddress", "DeleteAddress"]
    assert left.balancers == {NAME: None, INNER: None}
    assert not left.addresses
    assert not any(left.members.values())


def test_one_of_several_goes_and_leaves_the_others() -> None:
    both = [service(), service(2)]
    _, made = after([job(one) for one in both])
    steps, left = after([gone(both[0])], made)
    assert kinds(steps) == ["PutGroup", "PutBalancer", "DeleteAddress"]
    assert len(left.addresses) == 1


def test_services_at_node_ports_do_not_count_for_those_at_addresses() -> None:
    at_nodes = service(2, labels={"disable_load_balancer_floating_ip": "true"})
    _, made = after([job(service()), job(at_nodes)])
    steps, left = after([gone(service())], made)
    assert kinds(steps) == ["PutGroup", "PutBalancer", "DeleteAddress"]
    (rule,) = part(left.group or {}, "securityRules")
    assert rule["properties"]["destinationPortRanges"] == ["30080"]


@pytest.mark.parametrize("labels", [{}, {"disable_load_balancer_floating_ip": "true"}])
def test_a_node_whose_machine_may_be_another_one_is_let_in_nowhere(
    labels: Mapping[str, str],
) -> None:
    seen = EMPTY.having(strangers={"n1": "its machine is called db"})
    steps, left = after([job(service(labels=labels))], seen)
    assert [one.call.machine for one in steps if isinstance(one.call, Join)] == [
        id_of(NODES[1].spec.provider_id)
    ]
    assert "10.0.0.1" not in json.dumps(left.group)
    assert ("10.0.0.2" in json.dumps(left.group)) is bool(labels)


def test_a_machine_that_may_be_another_node_s_leaves_no_pool() -> None:
    _, made = after([job(service())])
    fewer = [job(service(), NODES[1:])]
    assert kinds(after(fewer, made)[0]) == ["Join"]
    assert after(fewer, made.having(strangers={"n1": "its machine is called db"}))[0] == []


def test_node_ports_stay_open_for_services_that_are_not_in_the_pass() -> None:
    at_nodes = service(labels={"disable_load_balancer_floating_ip": "true"})
    addresses = {f"10.0.0.{number}": f"n{number}" for number in (1, 2)}
    own = frozenset(addresses)
    inside = msgspec.structs.replace(scene(), node_addresses=addresses, own_addresses=own)
    _, made = after([job(at_nodes)], at=inside)
    others = msgspec.structs.replace(inside, node_ports={"Tcp": frozenset({30080})})
    for place, rules in ((others, 1), (inside, 0)):
        _, left = after([gone(at_nodes)], made, place)
        assert len(part(left.group or {}, "securityRules")) == rules


def test_without_a_security_group_nobody_is_let_in_by_rules() -> None:
    bare = State({NAME: None, INNER: None}, sets={SET: MODEL})
    steps, made = after([job(service())], bare)
    assert "PutGroup" not in kinds(steps)
    steps, _ = after([gone(service())], made)
    assert "PutGroup" not in kinds(steps)


def test_pools_that_somebody_else_fills_are_left_alone() -> None:
    at = scene(preConfiguredBackendPoolLoadBalancerTypes="all")
    assert "Join" not in kinds(after([job(service())], at=at)[0])
    by_address = scene(loadBalancerBackendPoolConfigurationType="nodeIP")
    steps, made = after([job(service())], at=by_address)
    assert "Join" not in kinds(steps)
    more = [job(service(), [*NODES, node(3)])]
    assert kinds(after(more, made, by_address)[0]) == ["PutBalancer"]


def test_nodes_that_are_no_hosts_leave_and_strangers_stay() -> None:
    _, made = after([job(service())])
    pool = scene().place.pool_id(NAME, "IPv4").lower()
    stranger = id_of(machine(9))
    members = {pool: made.members[pool] | {stranger}}
    made = msgspec.structs.replace(made, members=members)
    steps, left = after([job(service(), NODES[:1])], made)
    left_pool = scene().place.pool_id(NAME, "IPv4")
    assert [one.call for one in steps] == [Join(id_of(machine(2, of_set=True)), (), (left_pool,))]
    assert left.members[pool] == {id_of(machine(1)), stranger}


def test_machines_that_azure_refused_are_not_asked_about_again() -> None:
    refused = {id_of(machine(1)): "no", SET: "no"}
    steps, _ = after([job(service())], msgspec.structs.replace(EMPTY, refused=refused))
    assert kinds(steps) == ["PutAddress", "PutBalancer", "Join", "PutGroup"]


def test_a_scale_set_is_changed_only_where_it_is_known_and_lacks_the_pool() -> None:
    unknown = msgspec.structs.replace(EMPTY, sets={})
    assert "JoinSet" not in kinds(after([job(service())], unknown)[0])
    _, made = after([job(service())])
    again = msgspec.structs.replace(made, members={})
    assert "JoinSet" not in kinds(after([job(service())], again)[0])


def test_a_shared_address_keeps_the_ports_of_others() -> None:
    _, made = after([job(service())])
    (address,) = [str(part(one, "ipAddress")) for one in made.addresses.values()]
    second = service(2, 443, load_balancer_ip=address)
    steps, both = after([job(second)], made)
    assert kinds(steps) == ["PutAddress", "PutBalancer", "PutGroup"]
    jobs = placed([job(second)], both, scene())
    assert ingress(jobs[0], both, spots(jobs, both, scene())) == [address]
    steps, left = after([gone(service())], both)
    assert kinds(steps) == ["PutGroup", "PutBalancer", "PutAddress"]
    rules = part(left.group or {}, "securityRules")
    assert [one["properties"]["destinationPortRanges"] for one in rules] == [["443"]]
    inside = {"load_balancer_internal": "true", "load_balancer_ipv4": "10.0.0.50"}
    _, first = after([job(service(3, labels=inside))])
    steps, shared = after([job(service(4, 81, labels=inside))], first)
    assert kinds(steps) == ["PutBalancer"]
    steps, _ = after([gone(service(4, 81, labels=inside))], shared)
    assert kinds(steps) == ["PutBalancer"]


def test_an_address_that_azure_has_not_given_yet_is_left_out() -> None:
    _, made = after([job(service()), job(service(2, labels=INTERNAL))])
    for one, name in ((service(), NAME), (service(2, labels=INTERNAL), INNER)):
        bare = msgspec.structs.replace(made, addresses={}, balancers={name: {"properties": {}}})
        jobs = placed([job(one)], made, scene())
        where = spots(jobs, made, scene())
        assert ingress(jobs[0], bare, where) == []
    assert ingress(gone(service()), made, {}) == []


def test_tags_of_the_cloud_config_are_set_with_a_change() -> None:
    _, made = after([job(service())], at=scene(tags="a=b"))
    assert made.group is not None
    assert made.group["tags"] == {"a": "b"}


def test_two_services_that_name_one_address_share_its_frontend() -> None:
    address = f"{GROUP}/Microsoft.Network/publicIPAddresses/kept"
    known = {
        address.lower(): {"id": address, "name": "kept", "properties": {"ipAddress": "192.0.2.9"}}
    }
    state = msgspec.structs.replace(EMPTY, addresses=known)
    labels = {"pip_name": "kept"}
    jobs = [job(service(1, labels=labels)), job(service(2, 443, labels=labels))]
    _, made = after(jobs, state)
    assert len(part(made.balancers[NAME] or {}, "frontendIPConfigurations")) == 1
    assert len(part(made.balancers[NAME] or {}, "loadBalancingRules")) == 2


def test_what_a_service_cannot_have_is_told() -> None:
    with pytest.raises(InvalidRequest, match="does not exist"):
        plan([job(service(labels={"pip_name": "none"}))], EMPTY, scene())
    with pytest.raises(InvalidRequest, match="no public IP"):
        plan([job(service(load_balancer_ip="192.0.2.1"))], EMPTY, scene())


def test_each_step_has_a_line_in_a_preview() -> None:
    place = scene().place
    document: dict[str, Any] = {"properties": {}}
    everything = [
        put_address("x/y", {}, is_new=True), delete_address("x/y"),
        put_balancer(NAME, None, document), delete_balancer(INNER),
        put_group(place, NSG, document), join("m/1", ("p/q",), ("p/r",)), join_set("s/1", ("p/q",)),
        put_link("x/l", {}, is_new=True), delete_link("x/l"),
    ]  # fmt: skip
    lines = [line for one in everything for line in one.lines]
    assert [(one.action, one.part, one.detail) for one in lines] == [
        ("create", "public IP y", ""),
        ("delete", "public IP y", ""),
        ("create", "load balancer kubernetes", ""),
        ("delete", "load balancer kubernetes-internal", ""),
        ("change", "security group nsg", ""),
        ("change", "machine 1", "+q -r"),
        ("change", "scale set 1", "+q"),
        ("create", "private link service l", ""),
        ("delete", "private link service l", ""),
    ]


def test_a_private_link_service_comes_after_its_frontend_and_goes_before_it() -> None:
    one = service(labels={**INTERNAL, "pls_create": "true"})
    steps, made = after([job(one), job(service(2))])
    assert kinds(steps)[-2:] == ["PutGroup", "PutLink"]
    steps, left = after([gone(one)], made)
    assert kinds(steps)[:1] == ["DeleteLink"]
    assert not left.links


def test_a_private_link_service_goes_once_its_service_is_reached_elsewhere() -> None:
    linked = {**INTERNAL, "pls_create": "true"}
    _, made = after([job(service(labels=linked))])
    moved = {**linked, "load_balancer_internal_subnet": "apps"}
    steps, left = after([job(service(labels=moved))], made)
    assert kinds(steps) == ["PutBalancer", "DeleteLink", "PutBalancer", "PutLink"]
    assert len(part(left.balancers[INNER] or {}, "frontendIPConfigurations")) == 1
    assert len(left.links) == 1


def test_a_former_address_is_closed_once_there_is_another_one() -> None:
    ids = [f"{GROUP}/Microsoft.Network/publicIPAddresses/{name}" for name in ("one", "two")]
    known = {
        id_.lower(): {"id": id_, "name": id_[-3:], "properties": {"ipAddress": f"192.0.2.{number}"}}
        for number, id_ in enumerate(ids)
    }
    state = msgspec.structs.replace(EMPTY, addresses=known)
    _, made = after([job(service(labels={"pip_name": "one"}))], state)
    edited = job(service(labels={"pip_name": "two"}))
    shown = (LoadBalancerIngress(ip="192.0.2.0"),)
    ref = msgspec.structs.replace(edited.ref, last_ingress=shown)
    steps, left = after([msgspec.structs.replace(edited, ref=ref)], made)
    assert kinds(steps) == ["PutBalancer", "PutGroup"]
    (rule,) = part(left.group or {}, "securityRules")
    assert rule["properties"]["destinationAddressPrefix"] == "192.0.2.1"


def test_a_frontend_that_others_use_gets_no_other_address() -> None:
    shared = {**INTERNAL, "load_balancer_ipv4": "10.0.0.9"}
    _, made = after([job(service(labels=shared)), job(service(2, 443, labels=shared))])
    other = job(service(labels={**shared, "load_balancer_ipv4": "10.0.0.8"}))
    with pytest.raises(InvalidRequest, match="TCP-443 uses its present one"):
        plan([other], made, scene())
    _, left = after([gone(service(2, 443, labels=shared))], made)
    steps, _ = after([other], left)
    assert kinds(steps) == ["PutBalancer"]


def test_a_node_that_claims_an_additional_address_closes_nothing_there() -> None:
    """A kubelet can, for a moment; the Service is not in the pass in which it does."""
    one, two, ip = (
        service(labels={"additional_public_ips": "20.1.2.3"}),
        service(2, 443),
        "20.1.2.3",
    )
    jobs = [job(one)]
    _, made = after(jobs, at=msgspec.structs.replace(scene(), claims=claims([one], jobs)))
    status = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=ip),))
    one = msgspec.structs.replace(one, status=ServiceStatus(load_balancer=status))
    jobs, claimed = [job(two)], {ip: "node-1"}
    at = msgspec.structs.replace(
        scene(),
        claims=claims([one, two], jobs),
        node_addresses=claimed,
        own_addresses=frozenset(claimed),
    )
    _, left = after(jobs, made, at=at)
    rules = part(left.group or {}, "securityRules")
    assert [rule for rule in rules if ip in json.dumps(rule)] == list(
        part(made.group or {}, "securityRules")
    )


@pytest.mark.parametrize(
    ("labels", "address", "expected"),
    [
        (INTERNAL, "10.0.0.9", {INNER}),
        (INTERNAL, "fd00::9", {INNER}),
        (INTERNAL, "20.1.2.3", set()),
        (INTERNAL, "", set()),
        ({}, "10.0.0.9", set()),
    ],
)
def test_services_tell_of_an_internal_load_balancer(
    labels: Mapping[str, str], address: str, expected: set[str]
) -> None:
    shown = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=address),))
    one = msgspec.structs.replace(service(labels=labels), status=ServiceStatus(load_balancer=shown))
    for services, jobs in (([one], []), ([], [job(one)])):
        found = is_reached_inside(services, jobs)
        seen = msgspec.structs.replace(scene(), is_reached_inside=found)
        assert named(EMPTY, seen) == expected


def test_private_link_services_of_other_clusters_are_not_deleted() -> None:
    one = service(labels=INTERNAL)
    _, made = after([job(one)])
    frontend = part(made.balancers[INNER] or {}, "frontendIPConfigurations")[0]["name"]
    id_ = f"{scene().place.balancer_id(INNER)}/frontendIPConfigurations/{frontend}"
    content = {"loadBalancerFrontendIpConfigurations": [{"id": id_}]}
    link = {"id": "x/link", "name": "link", "properties": content, "tags": {}}
    seen = msgspec.structs.replace(made, links={"x/link": link})
    assert "DeleteLink" not in kinds(plan([gone(one)], seen, scene()))


def test_a_security_group_without_room_is_told() -> None:
    taken = [
        {"name": f"r{n}", "properties": {"priority": n, "destinationAddressPrefix": "*"}}
        for n in range(500, 4096)
    ]
    full = {"properties": {"securityRules": taken}}
    granted = [
        guard.Grant(guard.Allow("IPv4", "Tcp", ("Internet",), (80,)), frozenset({"192.0.2.1"}))
    ]
    with pytest.raises(CloudError, match="priority"):
        guard.changed(full, (), granted)
    many = frozenset(f"10.{n // 256}.{n % 256}.1" for n in range(4001))
    with pytest.raises(CloudError, match="4000"):
        guard.changed(NSG, (), [guard.Grant(granted[0].rule, many)])


# Rows of Azure Resource Graph

POOL = "/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/a"
MACHINE_ROW: dict[str, Any] = {
    "id": f"{POOL}/virtualMachines/0", "location": "westeurope", "zones": ["1"], "size": "D2",
    "hardware": "", "computer": "A000000", "provisioning": "Succeeded",
    "power": "PowerState/running", "interfaces": [{"id": f"{POOL}/virtualMachines/0/nic"}],
}  # fmt: skip
CARD_ROW: dict[str, Any] = {
    "id": f"{POOL}/virtualmachines/0/NIC",
    "configurations": [{"properties": {"privateIPAddress": "10.0.0.4", "primary": True}}],
}
OF_ROWS = objects.node(
    "a000000", f"azure://{POOL}/virtualMachines/0",
    addresses=(NodeAddress("InternalIP", "10.0.0.4"), NodeAddress("Hostname", "a000000")),
    labels={LABEL_ZONE: "westeurope-1", LABEL_REGION: "westeurope", LABEL_INSTANCE_TYPE: "D2"},
)  # fmt: skip


def test_scale_sets_are_named_in_a_query_only_by_names_that_end_no_string() -> None:
    found = graph.sets_of(
        MachineId("s", "g", "0", set_) for set_ in ("a", "b-1_x", "x'", "", "y(z).w")
    )
    assert {one.rpartition("/")[2] for one in found} == {"a", "b-1_x", "y(z).w"}
    assert "in ('1', '2')" in graph.machines_query(["2", "1"])
    queries = (graph.machines_query, graph.interfaces_query, graph.addresses_query)
    asked = [write(["1"]).split(" | ")[1].rpartition("/")[2] for write in queries]
    assert asked == ["virtualmachines'", "networkinterfaces'", "publicipaddresses'"]


@pytest.mark.parametrize(
    ("machine", "card", "expected"),
    [
        ({}, {}, True),
        ({"zones": None}, {}, True),
        ({"zones": ["2"]}, {}, False),
        ({"location": "northeurope"}, {}, False),
        ({"size": "D4"}, {}, False),
        ({"size": ""}, {}, False),
        ({"computer": "b000000"}, {}, False),
        ({"computer": None}, {}, False),
        ({"power": "PowerState/stopped"}, {}, False),
        ({"power": ""}, {}, False),
        ({"provisioning": "Deleting"}, {}, False),
        ({"interfaces": None}, {}, False),
        ({"interfaces": []}, {}, False),
        ({"id": None}, {}, False),
        ({}, {"id": f"{POOL}/virtualmachines/1/nic"}, False),
        ({}, {"configurations": None}, False),
        ({}, {"configurations": [{"properties": {"privateIPAddress": "10.0.0.5"}}]}, False),
    ],
)
def test_a_node_is_confirmed_by_rows_that_say_the_same(
    machine: Mapping[str, Any], card: Mapping[str, Any], *, expected: bool
) -> None:
    found = graph.instances([{**MACHINE_ROW, **machine}], [{**CARD_ROW, **card}], [])
    one = found.get(f"{POOL}/virtualmachines/0")
    assert (one is not None and graph.is_same(OF_ROWS, one)) is expected


@pytest.mark.parametrize(("address", "expected"), [("198.51.100.7", True), ("", False)])
def test_an_interface_with_a_public_address_needs_its_row(address: str, *, expected: bool) -> None:
    public = {"publicIPAddress": {"id": f"{POOL}/PUBLIC"}}
    inner = CARD_ROW["configurations"][0]["properties"]
    card = {**CARD_ROW, "configurations": [{"properties": {**inner, **public}}]}
    assert graph.has_public([card])
    assert not graph.has_public([CARD_ROW])
    assert not graph.instances([MACHINE_ROW], [card], [])
    rows = [{"id": f"{POOL}/public", "address": address}]
    found = graph.instances([MACHINE_ROW], [card], rows)
    assert bool(found) is expected
    assert not any(graph.is_same(OF_ROWS, one) for one in found.values())
