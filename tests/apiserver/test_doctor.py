"""`proreus doctor` on a real API server: a clean bill for what is well, a name for what is not."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.app.doctor.observed import DAEMON_SETS, DEPLOYMENTS, PODS
from proreus.app.doctor.options import DoctorOptions
from proreus.app.doctor.rights import needs
from proreus.kube.errors import AlreadyExists
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    FINALIZER_LOAD_BALANCER,
    TAINT_UNINITIALIZED,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import CONFIG_MAPS, ENDPOINT_SLICES, LEASES, NAMESPACES, NODES, SERVICES
from proreus.testing.objects import service_body
from proreus.testing.waiting import until

from .read_only import Ran, Reader, existing, granted, reader
from .site import Site

SYSTEM: Final = "kube-system"
OWN: Final = "doctor"
"""The namespace of the manager's pods: no other test leaves anything there."""
TOLERATIONS: Final = [{"operator": "Exists"}]


@pytest.fixture
async def doctor(site: Site, tmp_path: Path) -> AsyncIterator[Reader]:
    with suppress(AlreadyExists):  # nobody empties namespaces here, so it is never deleted
        await site.client.create(NAMESPACES, {"metadata": {"name": OWN}})
    for lease in (await site.client.list(LEASES, SYSTEM)).items:
        name = lease["metadata"]["name"]
        if name.startswith("cloud-controller-manager"):
            await site.client.delete(LEASES, name, SYSTEM)
    async with reader(site, "doctor", tmp_path) as one:
        yield one


async def test_a_cluster_that_is_well_gets_a_clean_bill_from_an_account_that_can_only_read(
    site: Site, doctor: Reader
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(existing(site.client, DEPLOYMENTS, deployment(), OWN))
        await stack.enter_async_context(account(site))
        await stack.enter_async_context(site.manager("--load-balancer-classes=example.com/ours"))
        await site.join("one", "two")
        await service(site, "web")
        await service(site, "ours", loadBalancerClass="example.com/ours")
        for name in ("web", "ours"):
            await stack.enter_async_context(
                existing(site.client, ENDPOINT_SLICES, endpoint_slice(name), "default")
            )

        said: list[Ran] = []

        async def well() -> bool:
            said.append(await doctor.run("doctor", f"--namespace={OWN}"))
            return said[-1].code == 0

        try:
            await until("the doctor finds nothing", well)
        finally:
            print(said[-1].out, said[-1].err)

    assert "no problem found (2 nodes, 3 Services)" in said[-1].out
    assert "note:" not in said[-1].out
    doctor.check_only_read()


async def test_mistakes_are_named_on_their_objects(site: Site, doctor: Reader) -> None:
    async with AsyncExitStack() as stack:
        wrong = deployment(hostNetwork=False, tolerations=[])
        await stack.enter_async_context(existing(site.client, DEPLOYMENTS, wrong, OWN))
        await stack.enter_async_context(existing(site.client, PODS, pod(), OWN))
        await fail_pod(site)
        await break_nodes(site)
        await break_services(site)

        ran = await doctor.run("doctor", f"--namespace={OWN}", "--json", "--patience=0s")

    found = {(one["check"], one["about"]) for one in ran.json["findings"]}
    manager = f"deployment/{OWN}/cloud-controller-manager"
    assert ran.code == 1
    assert found >= {
        ("kubelet-not-external", "node/internal"),
        ("name-mismatch", "node/ghost"),
        ("provided-node-ip", "node/one"),
        ("provider-id-foreign", "node/foreign"),
        ("provider-id-duplicate", "node/twin-a"),
        ("machine-gone", "node/twin-a"),
        ("toleration-missing", manager),
        ("no-host-network", manager),
        ("pod-failing", f"pod/{OWN}/cloud-controller-manager-x"),
        ("no-leader", f"lease/{SYSTEM}"),
        ("rights-missing", f"user/system:serviceaccount:{OWN}:ccm"),
        ("class-unowned", "service/default/classed"),
        ("unsupported-spec", "service/default/six"),
        ("finalizer-stuck", "service/default/former"),
        ("no-endpoints", "service/default/podless"),
        ("service-unattended", "service/default/podless"),
    }
    doctor.check_only_read()


async def test_what_is_in_the_way_of_the_provider_local_is_named(
    site: Site, doctor: Reader, tmp_path: Path
) -> None:
    config = tmp_path / "local.yaml"
    config.write_text("routes: {enabled: false}")
    local = ("--cloud-provider=local", f"--cloud-config={config}")
    labels = {"app": "metallb"}
    speaker = {
        "metadata": {"name": "speaker", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "speaker", "image": "localhost/none"}]},
            },
        },
    }
    proxy = {"metadata": {"name": "kube-proxy"}, "data": {"config.conf": "mode: ipvs"}}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(existing(site.client, DAEMON_SETS, speaker, OWN))
        await stack.enter_async_context(existing(site.client, CONFIG_MAPS, proxy, SYSTEM))
        ran = await doctor.run("doctor", "--json", *local)
        of_a_cloud = await doctor.run("doctor", "--json")

    named = {
        ("metallb-beside", f"daemonset/{OWN}/speaker"),
        ("strict-arp-off", f"configmap/{SYSTEM}/kube-proxy"),
    }
    assert named <= {(one["check"], one["about"]) for one in ran.json["findings"]}
    assert not named & {(one["check"], one["about"]) for one in of_a_cloud.json["findings"]}
    doctor.check_only_read()


BGP: Final = """
instances: {enabled: false}
routes: {enabled: false}
gateway: {enabled: false}
pools: {default: {addresses: [192.0.2.64/27]}}
bgp:
  as: 64512
  peers:
    tor: {address: 10.9.0.1, as: 64513}
    rack: {address: 10.9.0.2, as: 64513, node-selectors: [{match-labels: {rack: "1"}}]}
"""


async def test_speakers_that_are_not_well_are_named(
    site: Site, doctor: Reader, tmp_path: Path
) -> None:
    config = tmp_path / "local.yaml"
    local = ("--cloud-provider=local", f"--cloud-config={config}", "--patience=0s", "--json")
    labels = {"app.kubernetes.io/component": "bgp-speaker"}
    container = {"name": "bgp-speaker", "image": "localhost/none"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    speaker = {
        "metadata": {"name": "cloud-controller-manager-bgp-speaker", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    pod_ = {
        "metadata": {"name": "speaker-one", "labels": labels},
        "spec": {"nodeName": "one", "containers": [container]},
    }
    status = {"name": "bgp-speaker", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    said = {"containerStatuses": [status], "conditions": [{"type": "Ready", "status": "False"}]}
    proxy = {"metadata": {"name": "kube-proxy"}, "data": {"config.conf": "mode: ipvs"}}
    await site.join("one", "two")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(existing(site.client, DAEMON_SETS, speaker, OWN))
        await stack.enter_async_context(existing(site.client, CONFIG_MAPS, proxy, SYSTEM))
        await stack.enter_async_context(existing(site.client, PODS, pod_, OWN))
        patch = Patch(PatchType.MERGE, {"status": said})
        await site.client.patch(PODS, "speaker-one", patch, OWN, subresource="status")
        config.write_text(BGP)
        ran = await doctor.run("doctor", f"--namespace={OWN}", *local)
        config.write_text(BGP.replace("as: 64513}", "as: 64512, ebgp-multihop: true}"))
        wrong = await doctor.run("doctor", f"--namespace={OWN}", *local)

    found = {(one["check"], one["about"]) for one in ran.json["findings"]}
    assert found >= {
        ("bgp-not-established", f"pod/{OWN}/speaker-one"),
        ("bgp-speaker-missing", "node/two"),
        ("bgp-peer-without-nodes", "bgp-peer/rack"),
    }
    checks = {check for check, _ in found}
    assert not checks & {"strict-arp-off", "cloud-config", "cloud-unavailable"}
    assert not [about for _, about in found if about.startswith("daemonset/")], "it is no manager"
    (config_,) = [one for one in wrong.json["findings"] if one["check"] == "cloud-config"]
    assert "peers tor ebgp-multihop: take it out, the peer has our own AS" in config_["evidence"]
    doctor.check_only_read()


async def test_a_refused_token_and_an_account_without_rights_are_reported(
    site: Site, doctor: Reader, tmp_path: Path
) -> None:
    await site.machines("one")
    doctor.token("wrong")
    refused = await doctor.run("doctor", "--json")
    nobody = Reader(site, "nobody", tmp_path)
    blind = await nobody.run("doctor", "--cloud-provider=")
    lost = await doctor.run("doctor", "--master=https://127.0.0.1:1")

    assert ("cloud-credentials", "cloud/simulated") in {
        (one["check"], one["about"]) for one in refused.json["findings"]
    }
    assert "wrong" not in refused.out
    assert blind.code == 2
    assert "could not read nodes" in blind.out
    assert lost.code == 2
    assert "the request to the API server failed" in lost.err


def deployment(**spec: Any) -> dict[str, Any]:
    """The manager's Deployment as the chart makes it."""
    labels = {"app.kubernetes.io/name": "cloud-controller-manager"}
    pod_spec = {
        "serviceAccountName": "ccm",
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "tolerations": TOLERATIONS,
        "containers": [
            {
                "name": "manager",
                "image": "example.com/proreus",
                "args": ["--load-balancer-classes=example.com/ours"],
            }
        ],
        **spec,
    }
    return {
        "metadata": {"name": "cloud-controller-manager", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    }


def pod() -> dict[str, Any]:
    """A pod of the manager."""
    labels = {"app.kubernetes.io/name": "cloud-controller-manager"}
    containers = [{"name": "manager", "image": "example.com/proreus"}]
    name = "cloud-controller-manager-x"
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}


async def fail_pod(site: Site) -> None:
    """Let the kubelet say that the manager's pod crashes."""
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}
    status = {
        "name": "manager", "image": "", "imageID": "", "ready": False, "restartCount": 7,
        "state": {"waiting": waiting},
    }  # fmt: skip
    patch = Patch(PatchType.MERGE, {"status": {"containerStatuses": [status]}})
    await site.client.patch(PODS, "cloud-controller-manager-x", patch, OWN, subresource="status")


def account(site: Site) -> Any:
    """All rights that the manager's service account needs."""
    options = DoctorOptions(load_balancer_classes=("example.com/ours",))
    rules = [
        {
            "apiGroups": [need.group],
            "resources": [need.resource],
            "resourceNames": [need.name] if need.name else [],
            "verbs": [need.verb],
        }
        for need in needs(options, frozenset())
    ]
    subject = {"kind": "ServiceAccount", "name": "ccm", "namespace": OWN}
    return granted(site.client, "test-ccm", rules, subject)


async def service(site: Site, name: str, **spec: Any) -> None:
    """A Service of type LoadBalancer."""
    await site.client.create(SERVICES, service_body(name, **spec), "default")


def endpoint_slice(name: str) -> dict[str, Any]:
    """A ready pod behind a Service."""
    return {
        "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.1.0.1"], "nodeName": "one", "conditions": {"ready": True}}
        ],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    }


async def break_nodes(site: Site) -> None:
    """Nodes with one mistake each; no manager runs."""
    (machine,) = await site.machines("one")
    await site.register((machine,))
    annotated = {"metadata": {"annotations": {ANNOTATION_PROVIDED_NODE_IP: "192.0.2.77"}}}
    await site.client.patch(NODES, "one", Patch(PatchType.MERGE, annotated))
    taint = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    gone = "simulated://sim-1/i-000000000000"
    specs: dict[str, dict[str, Any]] = {
        "internal": {},
        "ghost": {"taints": [taint]},
        "foreign": {"providerID": "aws:///eu-1a/i-1"},
        "twin-a": {"providerID": gone},
        "twin-b": {"providerID": gone},
    }
    for name, spec in specs.items():
        await site.client.create(NODES, {"metadata": {"name": name}, "spec": spec})


async def break_services(site: Site) -> None:
    """Services with one mistake each."""
    await service(site, "podless")
    await service(site, "classed", loadBalancerClass="example.com/theirs")
    await service(site, "six", ipFamilies=["IPv6"], ipFamilyPolicy="SingleStack")
    await service(
        site, "former", type="ClusterIP", metadata={"finalizers": [FINALIZER_LOAD_BALANCER]}
    )
