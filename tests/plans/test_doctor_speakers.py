"""What the doctor and the status say of BGP speakers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proreus.app.doctor.diagnosis import diagnose
from proreus.app.doctor.manager import is_manager
from proreus.app.doctor.observed import (
    Cloud,
    Container,
    ContainerState,
    ContainerStatus,
    Finding,
    Observed,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    Speakers,
    Toleration,
    Waiting,
    Workload,
    WorkloadSpec,
)
from proreus.app.speaker.pods import UNHEARD, problem
from proreus.app.status import text
from proreus.app.status.speakers import SHOWN, speaker_rows
from proreus.app.status.summary import SpeakerRow, summarise
from proreus.cloudprovider.selectors import Selector
from proreus.kube.objects import (
    LABEL_EXCLUDE_LB,
    Condition,
    Endpoint,
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    ObjectMeta,
    Service,
    Taint,
)
from proreus.providers.local.addresses import Pool, parse_range
from proreus.providers.local.bgp.config import BGP, Peer
from proreus.providers.local.config import Gateway, LocalConfig, PoolConfig
from proreus.testing import objects

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=1)
LABELS = {"app.kubernetes.io/component": "bgp-speaker"}
READY = Condition("Ready", "True")
UNREADY = Condition("Ready", "False")
FLAGS = ("--cloud-config=/etc/local.yaml", "--frr-sockets=/run/frr", "--v=2")
RACK = Selector(match_labels={"rack": "1"})


def a_pod(
    node: str = "one", *, ready: bool = True, created: datetime = OLD, phase: str = "Running",
    **containers: Any,
) -> Pod:  # fmt: skip
    """A speaker's pod; a container is ready, not ready (False) or waits for the reason given."""
    statuses = [
        ContainerStatus(
            name.replace("_", "-"),
            3 if isinstance(state, str) else 0,
            ContainerState(Waiting(state, "words") if isinstance(state, str) else None),
            state is True,
        )
        for name, state in containers.items()
    ]
    meta = ObjectMeta(
        name=f"speaker-{node}", namespace="lb", labels=LABELS, creation_timestamp=created
    )
    spec = PodSpec(containers=(Container("bgp-speaker", args=FLAGS),), node_name=node)
    return Pod(meta, spec, PodStatus(phase, (READY if ready else UNREADY,), tuple(statuses)))


def a_set(*, tolerations: tuple[Toleration, ...] = (), **spec: Any) -> Workload:
    meta = ObjectMeta(name="speaker", namespace="lb", labels=LABELS)
    template = PodTemplate(PodSpec(tolerations=tolerations, **spec))
    return Workload(meta, WorkloadSpec(template), "DaemonSet")


def a_node(name: str = "one", **fields: Any) -> Node:
    given = {"creation_timestamp": OLD, "conditions": (READY,), **fields}
    return objects.node(name, f"local://{name}", **given)


def config(**peers: Peer) -> LocalConfig:
    return LocalConfig(
        pools={"default": PoolConfig(addresses=("192.0.2.64/27",))},
        gateway=Gateway(enabled=False),
        bgp=BGP(as_=64512, peers=peers or {"tor": Peer(address="10.9.0.1", as_=64513)}),
    )


def found(
    *nodes: Node,
    sets: tuple[Workload, ...] = (a_set(),),
    pods: tuple[Pod, ...] = (),
    local: LocalConfig | None = None,
    **more: Any,
) -> list[Finding]:
    observed = Observed(
        now=NOW,
        nodes=nodes,
        elects=False,
        speakers=Speakers(sets, pods),
        cloud=Cloud("local", local=local or config()),
        **more,
    )
    named = {"bgp", "frr", "strict"}
    return [one for one in diagnose(observed).findings if one.check.split("-")[0] in named]


ALL_WELL: dict[str, Any] = {"bgp_speaker": True, "zebra": True, "bfdd": True, "bgpd": True}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (a_pod(**ALL_WELL), ""),
        (a_pod(ready=False, **{**ALL_WELL, "bgp_speaker": False}), UNHEARD),
        (
            a_pod(ready=False, **{**ALL_WELL, "bgp_speaker": False, "bgpd": "CrashLoopBackOff"}),
            "bgpd: CrashLoopBackOff after 3 restarts (words)",
        ),
        (a_pod(ready=False, **{**ALL_WELL, "bgpd": False}), "not ready: bgpd"),
        (a_pod(ready=False, **ALL_WELL), "not ready: the pod"),
        (a_pod(ready=False, phase="Pending"), "its pod is Pending"),
        (a_pod(ready=False, phase=""), "its pod is new"),
        (Pod(), "its pod is new"),
    ],
)
def test_why_a_speaker_is_not_well_is_read_off_its_pod(pod: Pod, words: str) -> None:
    assert problem(pod) == words


@pytest.mark.parametrize(
    ("containers", "check", "words"),
    [
        ({"bgp_speaker": False}, "bgp-not-established", "exec speaker-one -c bgp-speaker"),
        ({"bgpd": "CrashLoopBackOff"}, "frr-not-running", "bgpSpeaker.frr.image"),
        ({"zebra": "ImagePullBackOff", "bgp_speaker": False}, "frr-not-running", "ImagePull"),
        ({"bgp_speaker": "CrashLoopBackOff"}, "bgp-speaker-not-ready", "describe pod speaker-one"),
    ],
)
def test_speakers_that_are_not_well_are_named(
    containers: dict[str, Any], check: str, words: str
) -> None:
    pod = a_pod(ready=False, **{**ALL_WELL, **containers})
    (one,) = found(a_node(), pods=(pod,))
    assert (one.check, one.about) == (check, "pod/lb/speaker-one")
    assert words in f"{one.evidence} {one.remedy}"


def test_the_command_that_shows_the_sessions_has_the_speaker_s_own_flags() -> None:
    (one,) = found(a_node(), pods=(a_pod(ready=False, **{**ALL_WELL, "bgp_speaker": False}),))
    assert (
        "-- proreus bgp-speaker --show --cloud-config=/etc/local.yaml --frr-sockets=/run/frr`"
        in one.remedy
    )


def test_a_speaker_that_has_just_been_made_is_no_mistake() -> None:
    young = NOW - timedelta(seconds=5)
    assert found(a_node(), pods=(a_pod(ready=False, created=young, phase="Pending"),)) == []
    assert found(a_node(creation_timestamp=young)) == []


@pytest.mark.parametrize(
    ("node", "more", "evidence"),
    [
        ({}, {}, "no pod of daemonset/lb/speaker"),
        ({"taints": (Taint("gpu", "NoSchedule"),)}, {}, "does not tolerate gpu:NoSchedule"),
        ({"taints": (Taint("gpu", "PreferNoSchedule"),)}, {}, "is there"),
        ({"taints": (Taint("node.kubernetes.io/unreachable", "NoExecute"),)}, {}, "is there"),
        (
            {"taints": (Taint("gpu", "NoSchedule"),)},
            {"sets": (a_set(tolerations=(Toleration(operator="Exists"),)),)},
            "is there",
        ),
        ({"labels": {"rack": "1"}}, {"sets": (a_set(node_selector={"rack": "1"}),)}, "is there"),
    ],
)
def test_chosen_nodes_without_a_speaker_are_named(
    node: dict[str, Any], more: dict[str, Any], evidence: str
) -> None:
    (one,) = found(a_node("two", **node), a_node(), pods=(a_pod(**ALL_WELL),), **more)
    assert (one.check, one.about) == ("bgp-speaker-missing", "node/two")
    assert one.evidence.endswith(evidence) or evidence in one.evidence
    assert ("does not tolerate" in one.evidence) == ("does not tolerate" in evidence)


@pytest.mark.parametrize(
    ("node", "more"),
    [
        ({}, {"sets": (a_set(node_selector={"rack": "1"}),)}),
        ({}, {"sets": (a_set(affinity={"nodeAffinity": {}}),)}),
        ({}, {"sets": ()}),
        ({"labels": {LABEL_EXCLUDE_LB: ""}}, {}),
        (
            {},
            {
                "local": config(
                    tor=Peer(address="10.9.0.1", as_=64513, node_selectors=(RACK,)),
                )
            },
        ),
    ],
    ids=["selector", "affinity", "on hosts", "left out", "no peer"],
)
def test_other_nodes_need_no_speaker(node: dict[str, Any], more: dict[str, Any]) -> None:
    has = a_node("one", labels={"rack": "1"})
    assert found(a_node("two", **node), has, pods=(a_pod(**ALL_WELL),), **more) == []


def test_one_node_can_be_asked_about() -> None:
    observed = Observed(now=NOW, nodes=(a_node("one"), a_node("two")), elects=False,
                        speakers=Speakers((a_set(),)))  # fmt: skip
    abouts = [one.about for one in diagnose(observed, node="two").findings]
    assert "node/two" in abouts
    assert "node/one" not in abouts


def test_a_peer_that_no_node_has_is_named() -> None:
    peers = {
        "far": Peer(address="10.9.0.1", as_=64513, node_selectors=(RACK,)),
        "near": Peer(address="10.9.0.2", as_=64513),
    }
    (one,) = found(a_node(), pods=(a_pod(**ALL_WELL),), local=config(**peers))
    assert (one.check, one.about) == ("bgp-peer-without-nodes", "bgp-peer/far")


IPVS = {"config.conf": "mode: ipvs"}


def test_arp_matters_only_where_a_gateway_answers() -> None:
    gateway = LocalConfig(pools={"default": PoolConfig(addresses=("192.0.2.64/27",))})
    (one,) = found(sets=(), local=gateway, kube_proxy=IPVS)
    assert one.check == "strict-arp-off"
    assert found(sets=(), local=config(), kube_proxy=IPVS) == []


@pytest.mark.parametrize(("sets", "checks"), [((a_set(),), set()), ((), {"strict-arp-off"})])
def test_without_a_cloud_config_speakers_show_that_it_is_bgp(
    sets: tuple[Workload, ...], checks: set[str]
) -> None:
    observed = Observed(now=NOW, elects=False, speakers=Speakers(sets), kube_proxy=IPVS)
    assert {one.check for one in diagnose(observed).findings} == checks


def test_nothing_is_said_of_speakers_that_may_not_be_read() -> None:
    observed = Observed(now=NOW, nodes=(a_node(),), elects=False, kube_proxy=IPVS)
    assert {one.check for one in diagnose(observed).findings} & {"bgp-speaker-missing"} == set()


def test_speakers_are_no_managers() -> None:
    name = "cloud-controller-manager-bgp-speaker"
    assert is_manager(ObjectMeta(name=name))
    assert not is_manager(ObjectMeta(name=name, labels=LABELS))


# The status


def a_service(name: str, *ips: str, policy: str = "Cluster") -> Service:
    shown = [LoadBalancerIngress(ip=ip, ip_mode="VIP") for ip in ips]
    ensured = (Condition("LoadBalancerReady", "True"),)
    return objects.service(name, ingress=shown, external_traffic_policy=policy, conditions=ensured)


def a_slice(name: str, *nodes: str) -> EndpointSlice:
    meta = ObjectMeta(
        name=f"{name}-1", namespace="default", labels={"kubernetes.io/service-name": name}
    )
    return EndpointSlice(
        meta,
        address_type="IPv4",
        endpoints=tuple(Endpoint(("10.0.0.1",), node_name=n) for n in nodes),
    )


POOLS = (Pool(name="web", ranges=(parse_range("192.0.2.64/27"),)),)


def test_the_status_shows_what_each_speaker_announces_the_ill_ones_first() -> None:
    services = [
        a_service("web", "192.0.2.65"),
        a_service("near", "192.0.2.70", policy="Local"),
        a_service("far", "198.51.100.1", policy="Local"),
    ]
    slices = [a_slice("web", "one"), a_slice("near", "two"), a_slice("far", "two")]
    nodes = [a_node("one"), a_node("two"), a_node("three", labels={LABEL_EXCLUDE_LB: ""})]
    pods = [
        a_pod("one", **ALL_WELL),
        a_pod("three", **ALL_WELL),
        a_pod("two", ready=False, **{**ALL_WELL, "bgp_speaker": False}),
        a_pod("", ready=False, phase="Pending"),
    ]
    rows = speaker_rows(pods, nodes, services, slices, POOLS)
    assert rows == (
        SpeakerRow("no node", "its pod is Pending", (), 0),
        SpeakerRow("two", UNHEARD, ("192.0.2.65", "192.0.2.70"), 0),
        SpeakerRow("one", "", ("192.0.2.65",), 0),
        SpeakerRow("three", "", (), 0),
    )
    every = speaker_rows(pods[2:3], nodes, services, slices, None)
    assert every[0].addresses == ("192.0.2.65", "192.0.2.70", "198.51.100.1")
    shown = text.render(summarise((), (), NOW, speakers=rows), rows=3)
    assert f"SPEAKER    two: {UNHEARD}; is to announce 192.0.2.65, 192.0.2.70\n" in shown
    assert "SPEAKER    one: announces 192.0.2.65\n  and 1 more: --all shows them\n" in shown
    whole = text.render(summarise((), (), NOW, speakers=rows), rows=3, everything=True)
    assert "SPEAKER    three: announces no address\n" in whole


def test_of_many_addresses_the_first_are_listed() -> None:
    services = [a_service(f"s{n}", f"192.0.2.{64 + n}") for n in range(SHOWN + 3)]
    slices = [a_slice(f"s{n}", "one") for n in range(SHOWN + 3)]
    (row,) = speaker_rows([a_pod(**ALL_WELL)], [a_node()], services, slices, POOLS)
    assert (len(row.addresses), row.more) == (SHOWN, 3)
    assert row.addresses[0] == "192.0.2.64"
