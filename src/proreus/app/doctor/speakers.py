"""Find what is wrong with BGP speakers of the provider `local`. Pure.

Speakers publish their readiness and no more, so why a session is not up is asked on the node.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proreus.app.doctor.manager import tolerates
from proreus.app.doctor.observed import Finding, Observed, Pod, Workload, ago
from proreus.app.speaker.pods import CONTAINER, UNHEARD, problem
from proreus.cloudprovider.desired import is_left_out
from proreus.kube.objects import Node
from proreus.providers.local.bgp.config import BGP, selects
from proreus.providers.local.config import LocalConfig

_FRR: Final = frozenset({"zebra", "bfdd", "bgpd"})
_UNSCHEDULED: Final = frozenset({"NoSchedule", "NoExecute"})
_BY_DAEMON_SETS: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
)
"""Taints that pods of DaemonSets tolerate by themselves."""


def config_of(observed: Observed) -> LocalConfig | None:
    """Return the cloud-config of `local`, if the doctor was given it."""
    return None if observed.cloud is None else observed.cloud.local


def is_bgp(observed: Observed) -> bool:
    """Tell whether nodes announce addresses, and no gateway answers for them."""
    config = config_of(observed)
    if config is not None:
        return bool(config.bgp.peers)
    return observed.speakers is not None and bool(observed.speakers.sets)


def findings(observed: Observed) -> Iterator[Finding]:
    """Find speakers that are not well, and peers without nodes."""
    if observed.speakers is not None:
        for pod in observed.speakers.pods:
            yield from _of_pod(pod, observed)
    config = config_of(observed)
    if config is not None:
        yield from _of_peers(config.bgp, observed)


def missing(observed: Observed) -> Iterator[Finding]:
    """Find nodes that are to announce addresses, and have no speaker."""
    if observed.speakers is None:
        return
    config = config_of(observed)
    having = {pod.spec.node_name for pod in observed.speakers.pods}
    for one in observed.speakers.sets:
        for node in observed.nodes:
            if (
                node.metadata.name not in having
                and _is_chosen(one, node, config)
                and ago(observed.now, node.metadata.creation_timestamp) >= observed.patience
            ):
                yield _missing(one, node)


def _of_pod(pod: Pod, observed: Observed) -> Iterator[Finding]:
    why = problem(pod)
    if not why or ago(observed.now, pod.metadata.creation_timestamp) < observed.patience:
        return
    meta, node = pod.metadata, pod.spec.node_name or "no node"
    about = f"pod/{meta.namespace}/{meta.name}"
    waiting = {one.name for one in pod.status.container_statuses if one.state.waiting is not None}
    logs = f"`kubectl -n {meta.namespace} logs {meta.name} --all-containers --previous`"
    if waiting & _FRR:
        yield Finding(
            "frr-not-running",
            about,
            f"FRR does not run on {node}, which announces nothing",
            why,
            "give the chart an image with zebra, bgpd and bfdd of FRR 8.4 or newer"
            f" (bgpSpeaker.frr.image, programs); what they say: {logs}",
        )
    elif why == UNHEARD:
        yield Finding(
            "bgp-not-established",
            about,
            f"no router hears {node}",
            why,
            f"ask why: `kubectl -n {meta.namespace} exec {meta.name} -c {CONTAINER} --"
            f" {_show(pod)}` shows each peer, and what ended its last session; the AS numbers,"
            " addresses and passwords of both ends must agree",
        )
    else:
        yield Finding(
            "bgp-speaker-not-ready", about, f"the speaker of {node} is not ready", why,
            f"look at {logs} and `kubectl -n {meta.namespace} describe pod {meta.name}`",
        )  # fmt: skip


def _show(pod: Pod) -> str:
    """Return the command that shows the sessions, with the speaker's own flags."""
    args = [arg for one in pod.spec.containers if one.name == CONTAINER for arg in one.args]
    own = [arg for arg in args if arg.startswith(("--cloud-config", "--frr-sockets"))]
    return " ".join(["proreus", "bgp-speaker", "--show", *own])


def _of_peers(bgp: BGP, observed: Observed) -> Iterator[Finding]:
    labels = [node.metadata.labels for node in observed.nodes]
    for name, peer in bgp.peers.items() if labels else ():
        if not any(selects(peer.node_selectors, one) for one in labels):
            yield Finding(
                "bgp-peer-without-nodes",
                f"bgp-peer/{name}",
                "no node has a session with the peer",
                "its node-selectors match no node",
                "label nodes so, or correct node-selectors in the cloud-config",
            )


def _is_chosen(one: Workload, node: Node, config: LocalConfig | None) -> bool:
    """Tell whether a node is to have a speaker of the DaemonSet, as far as can be told."""
    spec, labels = one.spec.template.spec, node.metadata.labels
    if spec.affinity or is_left_out(node) or not _matches(spec.node_selector, labels):
        return False
    return config is None or any(
        selects(peer.node_selectors, labels) for peer in config.bgp.peers.values()
    )


def _matches(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _missing(one: Workload, node: Node) -> Finding:
    name, meta = node.metadata.name, one.metadata
    keeping = _keeping(one, node)
    evidence = f"no pod of daemonset/{meta.namespace}/{meta.name} is there"
    remedy = f"look at `kubectl -n {meta.namespace} describe daemonset {meta.name}`"
    if taints := ", ".join(keeping):
        evidence += f", which does not tolerate {taints}"
        remedy = (
            "tolerate it in bgpSpeaker.tolerations, or take the node out of load balancers by the"
            " label node.kubernetes.io/exclude-from-external-load-balancers"
        )
    return Finding(
        "bgp-speaker-missing",
        f"node/{name}",
        "no speaker runs on the node, so it announces no address",
        evidence,
        remedy,
    )


def _keeping(one: Workload, node: Node) -> Iterable[str]:
    """Return the taints of a node that keep the pods of a DaemonSet away."""
    given = one.spec.template.spec.tolerations
    for taint in node.spec.taints:
        counts = taint.effect in _UNSCHEDULED and taint.key not in _BY_DAEMON_SETS
        if counts and not any(tolerates(it, taint) for it in given):
            yield f"{taint.key}:{taint.effect}"
