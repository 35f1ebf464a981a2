"""Find what is wrong with the manager itself: its pods, leases and rights. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proreus.app.doctor.observed import (
    Finding,
    Observed,
    Pod,
    PodSpec,
    Toleration,
    Workload,
    ago,
    span,
)
from proreus.app.speaker.pods import is_speaker
from proreus.kube.objects import (
    TAINT_UNINITIALIZED,
    ObjectMeta,
    Taint,
    condition,
    has_taint,
    is_ready,
)

NAME: Final = "cloud-controller-manager"
CLOCKS_DIFFER: Final = 30.0
"""Seconds by which the clocks of two machines may differ."""

_KNOWN: Final = re.compile(rf"{NAME}|cloud-provider|(^|-)(ccm|cpi)(-|$)")
_LABELS: Final = ("app.kubernetes.io/name", "k8s-app", "app", "component", "name")
_STATIC: Final = "kubernetes.io/config.mirror"

_FIRST_TAINTS: Final = (
    Taint(TAINT_UNINITIALIZED, "NoSchedule", "true"),
    Taint("node.kubernetes.io/not-ready", "NoSchedule"),
)
"""The taints of every new node before a cloud-controller-manager has seen it."""
_TAINTS_BY_CLUSTER: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node.cluster.x-k8s.io/uninitialized",
)
"""Taints that the manager must tolerate if any node has them."""


def is_manager(meta: ObjectMeta) -> bool:
    """Tell whether an object is a cloud-controller-manager's, by name or the usual labels.

    Speakers of the same chart have its name in theirs.
    """
    if is_speaker(meta.labels):
        return False
    texts = (meta.name, *(meta.labels.get(label, "") for label in _LABELS))
    return any(_KNOWN.search(text) for text in texts)


def stated_flags(observed: Observed) -> Mapping[str, str]:
    """Return the flags on the first manager's command line, by name without dashes."""
    specs = [workload.spec.template.spec for workload in observed.workloads or ()]
    specs += [pod.spec for pod in observed.pods or ()]
    stated: dict[str, str] = {}
    for spec in specs[:1]:
        for container in spec.containers:
            for text in (*container.command, *container.args):
                if text.startswith("--"):
                    name, equals, value = text.removeprefix("--").partition("=")
                    stated[name.replace("_", "-")] = value if equals else "true"
    return stated


def service_account(observed: Observed) -> str:
    """Return the user name of the manager's service account, or "" without a manager."""
    for workload in observed.workloads or ():
        return _user(workload.metadata.namespace, workload.spec.template.spec)
    for pod in observed.pods or ():
        if _STATIC not in pod.metadata.annotations:
            return _user(pod.metadata.namespace, pod.spec)
    return ""


def _user(namespace: str, spec: PodSpec) -> str:
    return f"system:serviceaccount:{namespace}:{spec.service_account_name or 'default'}"


def findings(observed: Observed) -> Iterator[Finding]:
    """Find everything wrong with the manager."""
    taints = _taints_to_bear(observed)
    # A manager that reaches the API over the pod network is no mistake while all nodes are well.
    needs_host = any(
        has_taint(node, TAINT_UNINITIALIZED) or not is_ready(node) for node in observed.nodes
    )
    for workload in observed.workloads or ():
        about = f"{workload.kind.lower()}/{workload.metadata.namespace}/{workload.metadata.name}"
        yield from _spec(about, workload.spec.template.spec, taints, needs_host=needs_host)
        yield from _replicas(about, workload)
    for pod in observed.pods or ():
        if not observed.workloads and _STATIC not in pod.metadata.annotations:
            yield from _spec(_about(pod), pod.spec, taints, needs_host=needs_host)
        yield from _pod(pod, observed)
    if observed.elects and observed.leases is not None:
        yield from _leases(observed)
    yield from _rights(observed)


def _taints_to_bear(observed: Observed) -> tuple[Taint, ...]:
    present = {taint.key: taint for node in observed.nodes for taint in node.spec.taints}
    return (*_FIRST_TAINTS, *(present[key] for key in _TAINTS_BY_CLUSTER if key in present))


def _spec(
    about: str, spec: PodSpec, taints: Iterable[Taint], *, needs_host: bool
) -> Iterator[Finding]:
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in spec.tolerations):
            line = f"- {{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"
            yield Finding(
                "toleration-missing",
                about,
                "the manager cannot run on a node that waits for the manager to initialise it",
                f"its pods do not tolerate {taint.key}:{taint.effect}",
                f"add to spec.template.spec.tolerations: {line}",
            )
    if needs_host and not spec.host_network:
        yield Finding(
            "no-host-network",
            about,
            "the manager waits for the pod network, which may wait for the manager",
            "hostNetwork is not true",
            "set spec.template.spec.hostNetwork: true and dnsPolicy: Default",
        )
    if spec.host_network and spec.dns_policy == "ClusterFirstWithHostNet":
        yield Finding(
            "cluster-dns",
            about,
            "the manager waits for the cluster's DNS, whose pods wait for the manager",
            f"dnsPolicy is {spec.dns_policy}",
            "set spec.template.spec.dnsPolicy: Default",
        )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether a toleration lets a pod run in spite of a taint."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def _replicas(about: str, workload: Workload) -> Iterator[Finding]:
    if workload.spec.replicas == 0:
        yield Finding(
            "no-replicas",
            about,
            "the manager is switched off",
            "spec.replicas is 0",
            f"kubectl -n {workload.metadata.namespace} scale "
            f"{workload.kind.lower()}/{workload.metadata.name} --replicas=1",
        )


def _pod(pod: Pod, observed: Observed) -> Iterator[Finding]:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        yield Finding(
            "pod-unschedulable",
            _about(pod),
            "no node accepts a pod of the manager",
            f"{scheduled.reason}: {scheduled.message}",
            "add the tolerations that the message asks for, or correct the node selector",
        )
    for status in pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating"):
            yield Finding(
                "pod-failing",
                _about(pod),
                "a pod of the manager does not run",
                f"{status.name}: {waiting.reason}, {status.restart_count} restarts:"
                f" {waiting.message}",
                f"kubectl -n {observed.namespace} logs {pod.metadata.name} --previous",
            )


def _leases(observed: Observed) -> Iterator[Finding]:
    leases = [one for one in observed.leases or () if one.holder]
    if not leases:
        yield Finding(
            "no-leader",
            f"lease/{observed.lease_namespace}",
            "no manager leads, so no controller runs",
            f"no lease of a manager in {observed.lease_namespace} has a holder",
            f"see whether the manager runs: `kubectl -n {observed.namespace} get pods`; whether it "
            "uses another lease: --leader-elect-resource-name, --leader-elect-resource-namespace",
        )
    for lease in leases:
        age = ago(observed.now, lease.renewed)
        if age > lease.seconds + CLOCKS_DIFFER:
            yield Finding(
                "stale-lease",
                f"lease/{observed.lease_namespace}/{lease.name}",
                "the leader has stopped, and no other manager has taken its place",
                f"{lease.holder} renewed it {span(age)} ago; it is valid for {lease.seconds:g} s",
                "see whether the manager runs, and look at its log: "
                f"`kubectl -n {observed.namespace} get pods`",
            )


def _rights(observed: Observed) -> Iterator[Finding]:
    missing: dict[tuple[str, ...], list[str]] = {}
    for right in observed.rights or ():
        if not right.allowed:
            place = (right.user, right.group, right.resource, right.namespace, right.name)
            missing.setdefault(place, []).append(right.verb)
    for (user, group, resource, namespace, name), verbs in missing.items():
        what = f"{resource} {name}".rstrip() + (f" in {namespace}" if namespace else "")
        names = f', resourceNames: ["{name}"]' if name else ""
        rule = f'apiGroups: ["{group}"], resources: ["{resource}"]{names}'
        kind = f"Role in {namespace}" if namespace else "ClusterRole"
        yield Finding(
            "rights-missing",
            f"user/{user}",
            f"the manager may not {', '.join(verbs)} {what}",
            "the API server's answer to a SubjectAccessReview is no",
            f"apply what `proreus roles` prints, or add to its {kind}: "
            f"- {{{rule}, verbs: [{', '.join(verbs)}]}}",
        )


def _about(pod: Pod) -> str:
    return f"pod/{pod.metadata.namespace}/{pod.metadata.name}"
