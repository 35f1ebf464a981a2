"""Load balancers of Azure: what is made, with which names, and in how many writes."""

from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest, Pending
from proreus.kube.objects import ServicePort

from .balancing import (
    addresses,
    answers,
    balancer,
    delete,
    desired,
    ensure,
    everything,
    machines,
    name_of,
    node,
    parts,
    public_ip,
    rules,
    service,
    set_machines,
    targets,
)
from .emulator.server import Emulator, Fault
from .emulator.store import compute, network
from .site import CLUSTER, context, started

LB = "Microsoft.Network/loadBalancers"
NSG = "Microsoft.Network/networkSecurityGroups"
PIP = "Microsoft.Network/publicIPAddresses"
NAME = name_of(service().metadata.uid)


async def test_a_public_service_is_made_as_officially(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        found = await ensure(provider, nodes, service(session_affinity="ClientIP"))
    (name, address), *more = addresses(azure).items()
    assert not more
    assert name == f"kubernetes-{NAME}"
    assert found == {"web-1": [address["properties"]["ipAddress"]]}
    assert address["tags"]["k8s-azure-service"] == "shop/web-1"
    assert address["tags"]["k8s-azure-cluster-name"] == "kubernetes"
    assert address["tags"]["proreus_cluster-uid"] == CLUSTER.uid
    frontends, observed = (
        parts(azure, "frontendIPConfigurations"),
        parts(azure, "loadBalancingRules"),
    )
    assert list(frontends) == [NAME]
    rule = observed[f"{NAME}-TCP-80"]
    assert {key: rule[key] for key in (
        "protocol", "frontendPort", "backendPort", "enableFloatingIP", "enableTcpReset",
        "idleTimeoutInMinutes", "loadDistribution", "disableOutboundSnat",
    )} == {
        "protocol": "Tcp", "frontendPort": 80, "backendPort": 80, "enableFloatingIP": True,
        "enableTcpReset": True, "idleTimeoutInMinutes": 4, "loadDistribution": "SourceIP",
        "disableOutboundSnat": False,
    }  # fmt: skip
    probe = parts(azure, "probes")[f"{NAME}-TCP-80"]
    assert (probe["protocol"], probe["port"], probe["probeThreshold"]) == ("Tcp", 30080, 2)
    pool = parts(azure, "backendAddressPools")["kubernetes"]
    assert len(pool["backendIPConfigurations"]) == 2
    # The name that the official manager computes for Tcp, Internet, 80.
    (rule_name, allowed), *others = rules(azure).items()
    assert not others
    assert (
        rule_name == "k8s-azure-lb_allow_IPv4_b0ce5d14a86bcc1ae3e9a2f2c2b2b4f4"
        or rule_name.startswith("k8s-azure-lb_allow_IPv4_")
    )
    assert (allowed["priority"], allowed["sourceAddressPrefix"]) == (500, "Internet")
    assert targets(allowed) == {*found["web-1"]}


async def test_a_hundred_services_at_once_are_one_write_of_the_load_balancer(
    azure: Emulator,
) -> None:
    nodes = machines(azure, 3)
    many = [service(number) for number in range(100)]
    async with started(azure) as provider:
        found = await ensure(provider, nodes, *many)
        made = azure.counted()
        await ensure(provider, nodes, *many)
        rest = azure.counted()
        edited = [service(n, {"azure-load-balancer-tcp-idle-timeout": "9"}) for n in range(100)]
        await ensure(provider, nodes, *edited)
        edits = azure.counted()
        await delete(provider, *many)
        gone = azure.counted()
    assert len({ip for ips in found.values() for ip in ips}) == 100
    assert (made["PUT", LB], made["PUT", NSG], made["PUT", PIP]) == (1, 1, 100)
    assert made["PUT", "Microsoft.Network/networkInterfaces"] == 3
    assert not [key for key in rest if key[0] != "GET"]
    assert rest.total() == 5
    assert (edits["PUT", LB], sum(n for (m, _), n in edits.items() if m != "GET")) == (1, 1)
    assert (gone["PUT", LB], gone["DELETE", LB], gone["DELETE", PIP]) == (0, 1, 100)
    assert balancer(azure) is None
    assert not addresses(azure)
    assert not rules(azure)


async def test_an_internal_service_has_an_address_of_the_subnet(azure: Emulator) -> None:
    nodes = set_machines(azure)
    annotations = {
        "azure-load-balancer-internal": "true",
        "azure-load-balancer-internal-subnet": "apps",
        "azure-load-balancer-ipv4": "10.9.0.77",
    }
    async with started(azure) as provider:
        found = await ensure(provider, nodes, service(annotations=annotations))
        assert found == {"web-1": ["10.9.0.77"]}
        assert list(parts(azure, "loadBalancingRules", "kubernetes-internal")) == [
            f"{NAME}-apps-TCP-80"
        ]
        frontends = parts(azure, "frontendIPConfigurations", "kubernetes-internal")
        assert frontends[f"{NAME}-apps"]["privateIPAllocationMethod"] == "Static"
        assert not rules(azure)  # what is in the network gets in anyway
        model = azure.store.of[compute("virtualMachineScaleSets", "pool").lower()]
        assert "kubernetes-internal/backendAddressPools/kubernetes" in repr(model)
        await delete(provider, service(annotations=annotations), bare=True)
    assert balancer(azure, "kubernetes-internal") is None
    model = azure.store.of[compute("virtualMachineScaleSets", "pool").lower()]
    assert "kubernetes-internal" not in repr(model)


async def test_internal_services_made_at_once_have_an_address_each(azure: Emulator) -> None:
    nodes = machines(azure)
    many = [service(number, {"azure-load-balancer-internal": "true"}) for number in range(5)]
    async with started(azure) as provider:
        first = await ensure(provider, nodes, *many)
        assert await ensure(provider, nodes, *many) == first
    assert len({ip for ips in first.values() for ip in ips}) == 5
    assert not addresses(azure)


async def test_a_service_moves_between_public_and_internal(azure: Emulator) -> None:
    nodes = machines(azure)
    internal = {"azure-load-balancer-internal": "true"}
    ranges: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
    async with started(azure) as provider:
        public = await ensure(provider, nodes, service(**ranges), service(2))
        inside = await ensure(provider, nodes, service(annotations=internal, **ranges))
        assert list(addresses(azure)) == [f"kubernetes-{name_of(service(2).metadata.uid)}"]
        assert list(parts(azure, "frontendIPConfigurations")) == [name_of(service(2).metadata.uid)]
        every = set().union(*(targets(one) for one in rules(azure).values()))
        assert every == {*public["web-2"], *inside["web-1"]}
        await ensure(provider, nodes, service())
        assert balancer(azure, "kubernetes-internal") is None
        assert len(addresses(azure)) == 2


async def test_both_families(azure: Emulator) -> None:
    nodes = machines(azure, families=("IPv4", "IPv6"))
    both: dict[str, Any] = {"ip_families": ("IPv4", "IPv6")}
    async with started(azure) as provider:
        found = await ensure(provider, nodes, service(**both))
        assert len(found["web-1"]) == 2
        assert list(addresses(azure)) == [f"kubernetes-{NAME}", f"kubernetes-{NAME}-IPv6"]
        pools = parts(azure, "backendAddressPools")
        assert {name: len(one["backendIPConfigurations"]) for name, one in pools.items()} == {
            "kubernetes": 2,
            "kubernetes-IPv6": 2,
        }
        assert {f"{NAME}-TCP-80", f"{NAME}-TCP-80-IPv6"} == set(parts(azure, "loadBalancingRules"))
        assert len(rules(azure)) == 2
        await ensure(provider, nodes, service())
        assert list(addresses(azure)) == [f"kubernetes-{NAME}"]


@pytest.mark.parametrize("annotations", [{}, {"azure-load-balancer-internal": "true"}])
async def test_a_family_that_comes_or_goes_changes_no_address_of_the_other(
    azure: Emulator, annotations: dict[str, str]
) -> None:
    """What IPv6 has alone is called as what IPv4 has beside it."""
    nodes = machines(azure, families=("IPv4", "IPv6"))

    async def made(*families: str) -> list[str]:
        one = service(annotations=annotations, ip_families=families)
        return (await ensure(provider, nodes, one))["web-1"]

    async with started(azure) as provider:
        for first, second in (("IPv6", "IPv4"), ("IPv4", "IPv6")):
            (address,) = await made(first)
            both = await made(first, second)
            assert both[0] == address
            assert {":" in one for one in both} == {True, False}
            assert await made(first, second) == both
            assert await made(first) == [address]
            assert len(addresses(azure)) == (not annotations)
            await delete(provider, service(annotations=annotations))
            assert not addresses(azure)
            # Made with both, it keeps that of the one that stays, too.
            both = await made(first, second)
            assert await made(first) == both[:1]
            await delete(provider, service(annotations=annotations))
            assert not addresses(azure)


async def test_pools_by_address(azure: Emulator) -> None:
    nodes = machines(azure, 3)
    kind = "Microsoft.Network/networkInterfaces"
    async with started(azure, loadBalancerBackendPoolConfigurationType="nodeIP") as provider:
        await ensure(provider, nodes[:2], service())
        assert not azure.counted()["PUT", kind]
        await ensure(provider, nodes, service())
        again = azure.counted()
    pool = parts(azure, "backendAddressPools")["kubernetes"]
    assert [one["name"] for one in pool["loadBalancerBackendAddresses"]] == [
        "node-0", "node-1", "node-2",
    ]  # fmt: skip
    assert (again["PUT", LB], again["PUT", kind]) == (1, 0)


async def test_hosts_that_are_no_hosts_leave_their_pools(azure: Emulator) -> None:
    first, second = machines(azure)
    control = node(
        "node-1",
        second.spec.provider_id,
        "10.0.0.5",
        labels={"node-role.kubernetes.io/control-plane": ""},
    )
    async with started(azure, context(nodes=[first, second])) as provider:
        await ensure(provider, [first, second], service())
        await ensure(provider, [first], service())
        pool = parts(azure, "backendAddressPools")["kubernetes"]
        assert len(pool["backendIPConfigurations"]) == 1
    async with started(azure, context(nodes=[first, control])) as provider:
        await ensure(provider, [first, control], service())
        pool = parts(azure, "backendAddressPools")["kubernetes"]
        assert len(pool["backendIPConfigurations"]) == 1
    # A machine that is no node of the cluster is somebody else's business.
    async with started(azure, context(nodes=[second])) as provider:
        await ensure(provider, [second], service())
        pool = parts(azure, "backendAddressPools")["kubernetes"]
        assert len(pool["backendIPConfigurations"]) == 2


async def test_an_edit_is_told_from_what_others_have_set(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        stored = azure.store.of[network("loadBalancers", "kubernetes").lower()]
        stored["properties"]["outboundRules"] = [
            {
                "name": "aks",
                "id": f"{stored['id']}/outboundRules/aks",
                "properties": {
                    "protocol": "All",
                    "frontendIPConfigurations": [
                        {"id": f"{stored['id']}/frontendIPConfigurations/{NAME}"}
                    ],
                    "backendAddressPool": {"id": f"{stored['id']}/backendAddressPools/kubernetes"},
                },
            }
        ]
        stored["tags"]["theirs"] = "yes"
        more = service(
            ports=[
                ServicePort(80, "http", node_port=30080),
                ServicePort(53, "dns", protocol="UDP", node_port=30053),
            ]
        )
        await ensure(provider, nodes, more)
        found = balancer(azure)
    assert found is not None
    assert [one["name"] for one in found["properties"]["outboundRules"]] == ["aks"]
    assert found["tags"]["theirs"] == "yes"
    assert "probe" not in parts(azure, "loadBalancingRules")[f"{NAME}-UDP-53"]


async def test_a_change_by_somebody_else_is_observed_before_the_next_write(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        tries = 0

        def meddle(method: str, path: str) -> None:
            nonlocal tries
            if method == "PUT" and path.lower().endswith("/loadbalancers/kubernetes") and tries < 2:
                tries += 1
                stored = azure.store.of[path.lower()]
                stored["tags"][f"meddled-{tries}"] = "yes"
                azure.store.put(stored)

        azure.hooks.append(meddle)
        await ensure(provider, nodes, service(), service(2))
    found = balancer(azure)
    assert found is not None
    assert {"meddled-1", "meddled-2"} <= found["tags"].keys()
    assert len(found["properties"]["frontendIPConfigurations"]) == 2


async def test_a_change_that_goes_on_all_the_time_is_waited_for(azure: Emulator) -> None:
    nodes = machines(azure)
    azure.faults.append(
        Fault("PUT", "loadBalancers", status=409, code="AnotherOperationInProgress", times=99)
    )
    async with started(azure) as provider:
        found = await answers(provider, nodes, service())
    assert isinstance(found["web-1"], Pending)


async def test_operations_that_take_time_are_polled_and_their_failures_told(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    azure.works = 1
    async with started(azure) as provider:
        found = await ensure(provider, nodes, service())
        assert found["web-1"]
        azure.faults.append(
            Fault("PUT", "loadBalancers", code="InternalServerError", asynchronous=True)
        )
        failed = await answers(provider, nodes, service(), service(2))
        assert all(isinstance(one, CloudError) for one in failed.values())
        assert await ensure(provider, nodes, service(), service(2))


async def test_a_service_that_azure_refuses_does_not_keep_the_others_out(azure: Emulator) -> None:
    nodes = machines(azure)
    lost = {"azure-load-balancer-internal": "true", "azure-load-balancer-internal-subnet": "lost"}
    async with started(azure) as provider:
        found = await answers(
            provider,
            nodes,
            service(1),
            service(2, lost),
            service(3),
            service(4, {"azure-pip-name": "none"}),
        )
    assert isinstance(found["web-1"], Ensured)
    assert isinstance(found["web-3"], Ensured)
    assert isinstance(found["web-2"], CloudError)
    assert isinstance(found["web-4"], InvalidRequest)


@pytest.mark.parametrize("by", ["name", "address"])
async def test_a_public_ip_that_somebody_has_made(azure: Emulator, by: str) -> None:
    nodes = machines(azure)
    address = public_ip(azure, "kept")
    more: dict[str, Any] = (
        {"annotations": {"azure-pip-name": "kept"}}
        if by == "name"
        else {"load_balancer_ip": address}
    )
    async with started(azure) as provider:
        assert await ensure(provider, nodes, service(**more)) == {"web-1": [address]}
        assert list(addresses(azure)) == ["kept"]
        assert not addresses(azure)["kept"]["tags"]
        await delete(provider, service(**more))
        assert list(addresses(azure)) == ["kept"]
        assert balancer(azure) is None


async def test_services_share_an_address(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        first = await ensure(provider, nodes, service())
        (address,) = first["web-1"]
        second = service(
            2, ports=[ServicePort(443, "https", node_port=30443)], load_balancer_ip=address
        )
        assert await ensure(provider, nodes, second) == {"web-2": [address]}
        assert list(parts(azure, "frontendIPConfigurations")) == [NAME]
        assert (
            addresses(azure)[f"kubernetes-{NAME}"]["tags"]["k8s-azure-service"]
            == "shop/web-1,shop/web-2"
        )
        assert [targets(one) for one in rules(azure).values()] == [{address}, {address}]
        # The one that made it goes first: the other keeps address and rule.
        await delete(provider, service(ingress=[address]))
        assert list(parts(azure, "loadBalancingRules")) == [
            f"{name_of(second.metadata.uid)}-TCP-443"
        ]
        assert [one["destinationPortRanges"] for one in rules(azure).values()] == [["443"]]
        assert len(addresses(azure)) == 1
        await delete(provider, second)
        assert balancer(azure) is None
        assert not addresses(azure)
        assert not rules(azure)


async def test_no_service_names_what_belongs_to_another_namespace(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        (address,) = (await ensure(provider, nodes, service()))["web-1"]
        before = everything(azure)
        thief = service(2, namespace="other", load_balancer_ip=address)
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "shop" in str(found["web-2"])
        assert everything(azure) == before


async def test_source_ranges_tags_and_denials(azure: Emulator) -> None:
    nodes = machines(azure)
    annotations = {
        "azure-allowed-service-tags": "AzureCloud,AzureMonitor",
        "azure-deny-all-except-load-balancer-source-ranges": "true",
    }
    ranges: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24", "198.51.100.0/24")}
    async with started(azure) as provider:
        (address,) = (await ensure(provider, nodes, service(annotations=annotations, **ranges)))[
            "web-1"
        ]
        first = rules(azure)
        await ensure(provider, nodes, service(2), service(annotations=annotations, **ranges))
        second = rules(azure)
        await ensure(provider, nodes, service())
        third = rules(azure)
    sources = {
        one.get("sourceAddressPrefix") or tuple(one["sourceAddressPrefixes"]): one["access"]
        for one in first.values()
    }
    assert sources == {
        "AzureCloud": "Allow",
        "AzureMonitor": "Allow",
        ("192.0.2.0/24", "198.51.100.0/24"): "Allow",
        "*": "Deny",
    }
    assert first["k8s-azure-lb_deny-all_IPv4"]["priority"] == 4095
    # Rules keep their priorities while others come and go.
    assert {name: second[name]["priority"] for name in first} == {
        name: one["priority"] for name, one in first.items()
    }
    assert len(third) == 1
    assert address in targets(next(iter(third.values())))


async def test_rules_of_others_in_the_security_group_stay(azure: Emulator) -> None:
    nodes = machines(azure)
    group = azure.store.of[network("networkSecurityGroups", "nsg").lower()]
    theirs = {
        "name": "ssh", "id": f"{group['id']}/securityRules/ssh",
        "properties": {
            "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 500,
            "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*",
            "destinationPortRange": "22",
        },
    }  # fmt: skip
    group["properties"]["securityRules"].append(theirs)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        assert sorted(one["priority"] for one in rules(azure).values()) == [500, 501]
        await delete(provider, service())
    assert list(rules(azure)) == ["ssh"]


async def test_an_official_cluster_is_taken_over_with_nothing_made_anew(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        (address,) = (await ensure(provider, nodes, service()))["web-1"]
        for one in (
            azure.store.of[network("loadBalancers", "kubernetes").lower()],
            *addresses(azure).values(),
        ):
            one["tags"] = {k: v for k, v in one["tags"].items() if not k.startswith("proreus_")}
        azure.counted()
        taken = service(ingress=[address])
        assert await ensure(provider, nodes, taken) == {"web-1": [address]}
        counted = azure.counted()
        assert {key: n for key, n in counted.items() if key[0] != "GET"} == {
            ("PUT", LB): 1,
            ("PUT", PIP): 1,
        }
        await delete(provider, taken)
    assert not addresses(azure)


async def test_another_clusters_load_balancer_is_left_alone(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        stored = azure.store.of[network("loadBalancers", "kubernetes").lower()]
        stored["tags"]["proreus_cluster-uid"] = "another"
        before = everything(azure)
        found = await answers(provider, nodes, service(2))
        await delete(provider, service())
    assert isinstance(found["web-2"], CloudError)
    assert "another" in str(found["web-2"])
    assert everything(azure) == before


async def test_what_else_annotations_ask_for(azure: Emulator) -> None:
    nodes = machines(azure)
    ports = [
        ServicePort(80, "http", node_port=30080),
        ServicePort(81, "admin", node_port=30081),
        ServicePort(82, "raw", node_port=30082),
    ]
    annotations = {
        "azure-load-balancer-tcp-idle-timeout": "30",
        "azure-load-balancer-disable-tcp-reset": "true",
        "azure-disable-load-balancer-floating-ip": "true",
        "azure-dns-label-name": "shop",
        "azure-pip-tags": "team=web,A=c",
        "azure-pip-ip-tags": "RoutingPreference=Internet",
        "azure-additional-public-ips": "203.0.113.9",
        "azure-load-balancer-health-probe-protocol": "https",
        "azure-load-balancer-health-probe-request-path": "/ok",
        "azure-load-balancer-health-probe-interval": "10",
        "azure-load-balancer-health-probe-num-of-probe": "4",
        "port_80_health-probe_port": "admin",
        "port_80_health-probe_protocol": "tcp",
        "port_81_no_probe_rule": "true",
        "port_82_no_lb_rule": "true",
    }  # fmt: skip
    async with started(azure, tags="a=b") as provider:
        found = await ensure(provider, nodes, service(annotations=annotations, ports=ports))
        (address, *_) = found["web-1"]
        assert found["web-1"][1:] == ["203.0.113.9"]
        rule = parts(azure, "loadBalancingRules")[f"{NAME}-TCP-80"]
        assert (rule["backendPort"], rule["enableFloatingIP"]) == (30080, False)
        assert (rule["idleTimeoutInMinutes"], rule["enableTcpReset"]) == (30, False)
        assert set(parts(azure, "loadBalancingRules")) == {f"{NAME}-TCP-80", f"{NAME}-TCP-81"}
        probe = parts(azure, "probes")
        assert set(probe) == {f"{NAME}-TCP-80"}
        assert (probe[f"{NAME}-TCP-80"]["protocol"], probe[f"{NAME}-TCP-80"]["port"]) == (
            "Tcp",
            30081,
        )
        assert (
            probe[f"{NAME}-TCP-80"]["intervalInSeconds"],
            probe[f"{NAME}-TCP-80"]["probeThreshold"],
        ) == (10, 4)
        pip = addresses(azure)[f"kubernetes-{NAME}"]
        assert pip["properties"]["dnsSettings"]["domainNameLabel"] == "shop"
        assert pip["properties"]["ipTags"] == [
            {"ipTagType": "RoutingPreference", "tag": "Internet"}
        ]
        assert {
            "team": "web",
            "a": "c",
            "k8s-azure-dns-label-service": "shop/web-1",
        }.items() <= pip["tags"].items()
        (allowed,) = rules(azure).values()
        assert targets(allowed) == {"10.0.0.4", "10.0.0.5", "203.0.113.9"}
        assert sorted(allowed["destinationPortRanges"]) == ["30080", "30081", "30082"]
        azure.counted()
        await ensure(provider, nodes, service(annotations=annotations, ports=ports))
        assert not [key for key in azure.counted() if key[0] != "GET"]
        await delete(provider, service(annotations=annotations, ports=ports))
    assert address
    assert not addresses(azure)


async def test_all_ports_of_an_internal_service_and_local_traffic(azure: Emulator) -> None:
    nodes = machines(azure)
    annotations = {
        "azure-load-balancer-internal": "true",
        "azure-load-balancer-enable-high-availability-ports": "true",
    }
    local: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": 31000}
    async with started(azure) as provider:
        await ensure(provider, nodes, service(annotations=annotations), service(2, **local))
    (rule,) = parts(azure, "loadBalancingRules", "kubernetes-internal").values()
    assert (rule["protocol"], rule["frontendPort"], rule["backendPort"]) == ("All", 0, 0)
    other = name_of(service(2).metadata.uid)
    (probe,) = parts(azure, "probes").items()
    assert probe[0] == f"{other}-TCP-31000"
    assert (probe[1]["protocol"], probe[1]["port"], probe[1]["requestPath"]) == (
        "Http",
        31000,
        "/healthz",
    )


async def test_a_probe_that_all_services_share(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure, clusterServiceLoadBalancerHealthProbeMode="shared") as provider:
        await ensure(provider, nodes, service(), service(2))
        (found,) = parts(azure, "probes").items()
        assert found[0] == "cluster-service-shared-health-probe"
        assert (found[1]["port"], found[1]["requestPath"]) == (10256, "/healthz")
        await delete(provider, service())
        assert len(parts(azure, "probes")) == 1
        local: dict[str, Any] = {
            "external_traffic_policy": "Local",
            "health_check_node_port": 31000,
        }
        await ensure(provider, nodes, service(2, **local))
        assert list(parts(azure, "probes")) == [f"{name_of(service(2).metadata.uid)}-TCP-31000"]


async def test_a_host_whose_machine_is_gone_keeps_nobody_out(azure: Emulator) -> None:
    nodes = [*machines(azure), *set_machines(azure)]
    lost = node("lost", nodes[0].spec.provider_id.replace("node-0", "lost"), "10.0.0.99")
    gone = node("gone", f"{nodes[-1].spec.provider_id}7", "10.0.0.98")
    async with started(azure) as provider:
        found = (await answers(provider, [*nodes, lost, gone], service()))["web-1"]
    assert isinstance(found, Ensured)
    assert set(found.rejected) == {"lost", "gone"}


@pytest.mark.parametrize(
    "tags", ["K8S-Azure-Service=other/shop", "Proreus_cluster-uid=theirs", "team=a,Team=b"]
)
async def test_wrong_annotations_are_told_all_at_once(azure: Emulator, tags: str) -> None:
    wrong = {
        "azure-load-balancer-tcp-idle-timeout": "101",
        "azure-dns-label-name": "No",
        "azure-pip-name": "a/b",
        "azure-pip-prefix-id": "prefix",
        "azure-pip-tags": tags,
        "azure-load-balancer-ipv4": "::1",
        "azure-load-balancer-ipv6": "2001:db8::1%1",
        "azure-additional-public-ips": "x",
        "azure-allowed-service-tags": "<>",
        "azure-allowed-ip-ranges": "10.0.0.1/8",
        "azure-load-balancer-resource-group": "a b",
        "azure-load-balancer-health-probe-interval": "1",
        "azure-load-balancer-health-probe-request-path": "x",
        "port_80_health-probe_num-of-probe": "x",
        "azure-pls-create": "true",
    }
    async with started(azure) as provider:
        with pytest.raises(InvalidRequest) as error:
            desired(provider, service(annotations=wrong), ())
    for name in wrong:
        assert name in str(error.value), name


async def test_what_the_cluster_owns_is_listed_by_its_marks(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        assert provider.load_balancers is not None
        found = await provider.load_balancers.list_owned(CLUSTER)
    assert [(one.kind, one.service, one.service_uid) for one in found] == [
        ("load balancer", "", ""),
        ("public IP", "shop/web-1", service().metadata.uid),
    ]


async def test_a_missing_security_group_is_told(azure: Emulator) -> None:
    async with started(azure, securityGroupName="none") as provider:
        found = await answers(provider, machines(azure), service())
    assert isinstance(found["web-1"], CloudError)
    assert "securityGroupName" in str(found["web-1"])


async def test_node_ports_are_closed_when_no_service_is_reached_there_any_more(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    at_nodes = {"azure-disable-load-balancer-floating-ip": "true"}
    other = service(
        2,
        at_nodes,
        (ServicePort(81, "http", node_port=30081),),
        load_balancer_source_ranges=("192.0.2.0/24",),
    )
    inside = {one.address for node in nodes for one in node.status.addresses}
    async with started(azure, context(nodes=nodes)) as provider:
        await ensure(provider, nodes, service(annotations=at_nodes), other)
        assert [targets(one) for one in rules(azure).values()] == [inside] * 2
        found = await ensure(provider, nodes, service())
        floating = [one for one in rules(azure).values() if targets(one) != inside]
        assert [targets(one) for one in floating] == [{*found["web-1"]}]
        assert len(rules(azure)) == 2
        await ensure(provider, nodes, service(annotations=at_nodes))
        await delete(provider, service(annotations=at_nodes))
        assert {
            tuple(one["destinationPortRanges"])
            for one in rules(azure).values()
            if one["access"] == "Allow"
        } == {("30081",)}
        await delete(provider, other)
    assert not rules(azure)
