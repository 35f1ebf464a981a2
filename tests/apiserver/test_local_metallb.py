"""MetalLB's pools in a manager with the provider `local`: namespaces are chosen by their labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proreus.app.options import Options
from proreus.app.rights import manifests, roles
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NAMESPACES, SERVICES
from proreus.testing.manager import ManagerProcess
from proreus.testing.waiting import until

from .read_only import granted
from .site import Site

BOUND = """
    instances: {enabled: false}
    routes: {enabled: false}
    gateway: {enabled: false}
    bgp: {as: 64512, peers: {rack: {address: 10.9.0.1, as: 64513}}}
    ip-address-pools:
      apiVersion: v1
      kind: List
      items:
      - apiVersion: metallb.io/v1beta1
        kind: IPAddressPool
        metadata: {name: all, namespace: metallb-system}
        spec: {addresses: [198.51.100.0/24], autoAssign: true, avoidBuggyIPs: true}
      - apiVersion: metallb.io/v1beta1
        kind: IPAddressPool
        metadata: {name: red, namespace: metallb-system}
        spec:
          addresses: [192.0.2.0/28]
          serviceAllocation: {priority: 1, namespaceSelectors: [{matchLabels: {team: red}}]}
"""


def manager(site: Site, directory: Path, kubeconfig: Path | None = None) -> ManagerProcess:
    """A manager that assigns addresses, and has nothing to do with the kernel."""
    file = directory / "local.yaml"
    file.write_text(BOUND)
    flags = ("--cloud-provider=local", f"--cloud-config={file}", "--controllers=service")
    found = site.lone_manager(*flags)
    if kubeconfig is None:
        return found
    kept = [one for one in found.flags if not one.startswith("--kubeconfig=")]
    return ManagerProcess(*kept, f"--kubeconfig={kubeconfig}", log=found.log)


async def label(site: Site, **labels: str | None) -> None:
    """Give the namespace default labels, or take them."""
    body = Patch(PatchType.MERGE, {"metadata": {"labels": labels}})
    await site.client.patch(NAMESPACES, "default", body)


async def make(site: Site, name: str, port: int = 80, annotations: Mapping[str, str] = {}) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": port}]}
    made = {"metadata": {"name": name, "annotations": dict(annotations)}, "spec": spec}
    await site.client.create(SERVICES, made, "default")


async def address(site: Site, name: str) -> str:
    """The address of a Service, once it has one."""

    async def there() -> str:
        given = (await site.service(name)).status.load_balancer.ingress
        return given[0].ip if given else ""

    found: Any = await until(f"{name} has an address", there)
    return str(found)


async def test_labels_of_namespaces_choose_among_pools_of_metallb(
    site: Site, tmp_path: Path
) -> None:
    try:
        async with manager(site, tmp_path):
            await make(site, "early")
            assert await address(site, "early") == "198.51.100.1"
            await label(site, team="red")
            await make(site, "late")
            assert await address(site, "late") == "192.0.2.0"
            assert await address(site, "early") == "198.51.100.1"
    finally:
        await label(site, team=None)


async def test_a_service_that_asks_for_a_port_of_another_one_shows_their_address_no_more(
    site: Site, tmp_path: Path
) -> None:
    """Of two with one address and port in their status kube-proxy lets one have all clients."""
    shared = {"metallb.io/allow-shared-ip": "key"}
    async with manager(site, tmp_path):
        await make(site, "first", annotations=shared)
        await make(site, "other", 443, shared)
        both = await address(site, "first"), await address(site, "other")
        assert both == ("198.51.100.1", "198.51.100.1")
        asked = {**shared, "metallb.io/loadBalancerIPs": both[0]}
        wrong = {"metadata": {"annotations": asked}, "spec": {"ports": [{"port": 80}]}}
        await site.client.patch(SERVICES, "other", Patch(PatchType.MERGE, wrong), "default")

        async def shows_none() -> bool:
            return not (await site.service("other")).status.load_balancer.ingress

        await until("the other one has no address", shows_none)
        assert await address(site, "first") == both[0]
        right = {"spec": {"ports": [{"port": 444}]}}
        await site.client.patch(SERVICES, "other", Patch(PatchType.MERGE, right), "default")
        assert await address(site, "other") == both[0]


@pytest.mark.long
async def test_without_the_right_to_read_namespaces_services_keep_what_they_have(
    site: Site, tmp_path: Path
) -> None:
    try:
        await label(site, team="red")
        async with manager(site, tmp_path):
            await make(site, "old")
            assert await address(site, "old") == "192.0.2.0"
        site.may_be_refused = True
        poor = {"kind": "User", "name": "poor"}
        (role,) = roles(Options(leader_elect=False, secure_port=0), needs=frozenset())
        rules = manifests([role])[1]["rules"]
        rights = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}]
        other = manager(site, tmp_path, site.plane.kubeconfig_for("poor"))
        async with granted(site.client, "poor", rules, poor), other:
            edit = Patch(PatchType.MERGE, {"spec": {"ports": [{"port": 81}]}})
            await site.client.patch(SERVICES, "old", edit, "default")
            await make(site, "new")

            async def are_told() -> bool:
                said = [
                    one.message
                    for name in ("old", "new")
                    for one in await site.events("SyncLoadBalancerFailed", name)
                ]
                return sum("labels of the namespace default" in one for one in said) > 1

            await until("both are told what is missing", are_told)
            assert await address(site, "old") == "192.0.2.0"
            assert not (await site.service("new")).status.load_balancer.ingress
            async with granted(site.client, "richer", rights, poor):
                assert await address(site, "new") == "192.0.2.1"
            assert await address(site, "old") == "192.0.2.0"
    finally:
        await label(site, team=None)
