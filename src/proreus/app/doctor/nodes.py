"""Find what is wrong with nodes. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from proreus.app.clouds.plan import LABEL_CLOUD, is_about_belonging
from proreus.app.doctor.manager import NAME
from proreus.app.doctor.observed import Finding, Held, Observed, ago, span
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.controllers.cloud_node import plan as node_plan
from proreus.controllers.cloud_node.reasons import Reason
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.controllers.node_ipam import plan as ipam
from proreus.controllers.route import conditions as routes
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    condition,
    has_taint,
    is_ready,
)

PENDING: Final = 600.0
"""Seconds after which a machine that is still being created is reported."""


_CORRECT: Final = (
    "its kubelet reports: correct --provider-id, or the account, region or inventory in the "
    "--cloud-config; until then nodes whose machine is gone may stay"
)


class _Explanation(msgspec.Struct, frozen=True):
    check: str
    problem: str
    remedy: str


_EXPLANATIONS: Final[Mapping[str, _Explanation]] = {
    Reason.PROVIDED_NODE_IP_INVALID: _Explanation(
        "provided-node-ip-invalid",
        "the kubelet's --node-ip cannot be read",
        "give the kubelet one address, or one of each family, as --node-ip and restart it",
    ),
    Reason.PROVIDED_NODE_IP_MISMATCH: _Explanation(
        "provided-node-ip",
        "the kubelet's --node-ip is none of the addresses that the cloud gives the machine",
        "start the kubelet with one of these addresses as --node-ip, or without it",
    ),
    Reason.PROVIDER_ID_MISSING: _Explanation(
        "provider-id-missing",
        "neither the cloud nor the kubelet gives a provider id",
        "start the kubelet with --provider-id",
    ),
    Reason.NOT_OWNED: _Explanation(
        "provider-id-foreign",
        "the provider id is not of this cloud, region and account",
        "run the manager of that cloud; if the id is wrong, correct the kubelet's --provider-id "
        "and `kubectl delete node {name}`, so that it registers again",
    ),
    Reason.IDENTITY_CONFLICT: _Explanation(
        "identity-conflict",
        "the node's provider id names another machine than the cloud found for it",
        "`kubectl delete node {name}` if its machine was replaced, then restart its kubelet",
    ),
    Reason.THROTTLED: _Explanation(
        "cloud-throttled",
        "the cloud's quota of calls is used up",
        "ask for a larger quota, or find who else uses it: other managers with the same account",
    ),
    Reason.UNAUTHENTICATED: _Explanation(
        "cloud-credentials",
        "the cloud refuses the credentials",
        "renew the credentials that --cloud-config gives, or their rights",
    ),
    Reason.CONFIG_ERROR: _Explanation(
        "cloud-config", "the cloud-config is wrong", "correct --cloud-config as the message says"
    ),
    Reason.CLOUD_UNAVAILABLE: _Explanation(
        "cloud-unavailable",
        "the cloud does not answer",
        "check from the manager's pod that the cloud's API answers: route, proxy, DNS",
    ),
    Reason.CLOUD_TIMEOUT: _Explanation(
        "cloud-unavailable",
        "the cloud does not answer in time",
        "check from the manager's pod that the cloud's API answers: route, proxy, DNS",
    ),
    Reason.NO_ANSWER: _Explanation(
        "cloud-unavailable",
        "the cloud's answers leave this node out",
        "look at the log of the manager for faults of the provider",
    ),
    Reason.NOT_SUPPORTED: _Explanation(
        "cloud-refuses", "the cloud cannot describe the machine", "correct what the message names"
    ),
    Reason.INVALID_REQUEST: _Explanation(
        "cloud-refuses",
        "the cloud rejects the request as invalid",
        "correct what the message names",
    ),
    Reason.TOPOLOGY_DIFFERS: _Explanation(
        "topology-differs",
        "the machine is in another zone or region than the labels say",
        "`kubectl delete node {name}` and restart its kubelet; volumes depend on these labels, so "
        "they are never changed",
    ),
}


_UNDECIDED: Final = _Explanation(
    "cloud-undecided",
    "it is not known to which of the clouds the node belongs",
    f"`kubectl label --overwrite node {{name}} {LABEL_CLOUD}=CLOUD`, with the name of its cloud in "
    "--cloud-provider; for new nodes let the kubelet give the label or --provider-id",
)


def findings(observed: Observed) -> Iterator[Finding]:
    """Find everything wrong with nodes, one node after the other."""
    yield from _duplicates(observed.nodes)
    for node in observed.nodes:
        if node.metadata.deletion_timestamp is not None:
            continue
        of_node = tuple(_node_findings(node, observed))
        yield from of_node
        if all(finding.check != "machine-gone" for finding in of_node):
            yield from _network(node)
    yield from _held(observed)
    yield from _unknown(observed)


def _node_findings(node: Node, observed: Observed) -> Iterator[Finding]:
    name = node.metadata.name
    if not has_taint(node, TAINT_UNINITIALIZED) and not node.spec.provider_id:
        if condition_now(node, observed) is None:
            yield _not_external(node)
        return
    if observed.cloud is not None and observed.cloud.owns.get(name) is Ownership.NO:
        text = f"spec.providerID is {node.spec.provider_id}"
        yield _explained(node, _EXPLANATIONS[Reason.NOT_OWNED], text)
        return
    finding = _from_condition(node, observed)
    if finding is None and isinstance(_answer(node, observed), NotFound):
        finding = _no_machine(node, "the cloud was asked just now")
    if finding is not None:
        yield finding
    elif _is_unattended(node, observed):
        yield Finding(
            "node-unattended",
            f"node/{name}",
            "no cloud-controller-manager looks at this node",
            f"it has the taint {TAINT_UNINITIALIZED}, was registered "
            f"{span(ago(observed.now, node.metadata.creation_timestamp))} ago and has no condition "
            f"{node_plan.CONDITION}",
            "look first at the findings about the manager, then at its log: "
            f"`kubectl -n {observed.namespace} logs -l app.kubernetes.io/name={NAME}`",
        )


def condition_now(node: Node, observed: Observed) -> Condition | None:
    """Return the condition that the manager would write to the node now, else the present one."""
    answer = _answer(node, observed)
    change = None
    if answer is not None:
        is_refresh = not has_taint(node, TAINT_UNINITIALIZED)
        change = node_plan.plan(node, answer, observed.now, refresh=is_refresh)
    if change is not None and change.status:
        for one in change.status.body["status"].get("conditions", ()):
            return Condition(one["type"], one["status"], one["reason"], one["message"])
    return condition(node.status.conditions, node_plan.CONDITION)


def _answer(node: Node, observed: Observed) -> InstanceAnswer | None:
    return observed.cloud.answers.get(node.metadata.name) if observed.cloud is not None else None


def _is_unattended(node: Node, observed: Observed) -> bool:
    return (
        has_taint(node, TAINT_UNINITIALIZED)
        and condition(node.status.conditions, node_plan.CONDITION) is None
        and ago(observed.now, node.metadata.creation_timestamp) >= observed.patience
    )


def _from_condition(node: Node, observed: Observed) -> Finding | None:
    answer = _answer(node, observed)
    is_of_cloud = isinstance(answer, CloudError) and not is_about_belonging(str(answer))
    if is_of_cloud and not has_taint(node, TAINT_UNINITIALIZED):
        return None  # reported as a finding about the cloud
    state = condition_now(node, observed)
    if state is None:
        return None
    evidence = f"{node_plan.CONDITION}={state.status}, {state.reason}: {state.message}"
    if state.reason == Reason.INSTANCE_NOT_FOUND:
        return _no_machine(node, evidence)
    if state.reason == Reason.INSTANCE_PENDING:
        if ago(observed.now, node.metadata.creation_timestamp) < PENDING:
            return None
        problem = "the cloud says that the machine is not ready to be described"
        remedy = "look at the machine in the cloud's console"
        return Finding("machine-pending", _about(node), problem, evidence, remedy)
    explanation = _EXPLANATIONS.get(state.reason)
    if explanation is not None and is_about_belonging(state.message):
        explanation = _UNDECIDED
    return None if explanation is None else _explained(node, explanation, evidence)


def _explained(node: Node, why: _Explanation, evidence: str) -> Finding:
    remedy = why.remedy.format(name=node.metadata.name)
    return Finding(why.check, _about(node), why.problem, evidence, remedy)


def _no_machine(node: Node, evidence: str) -> Finding:
    name, id_ = node.metadata.name, node.spec.provider_id
    if not id_:
        return Finding(
            "name-mismatch",
            _about(node),
            f"the cloud has no machine named {name}",
            evidence,
            "give the machine the node's name or start the kubelet with "
            "--hostname-override=MACHINE, or with --provider-id; then "
            f"`kubectl delete node {name}` and restart the kubelet",
        )
    if is_ready(node):
        problem = f"the cloud has no machine {id_}, although the node is Ready"
        return Finding("machine-unknown", _about(node), problem, evidence, _CORRECT)
    remedy = (
        "the manager deletes it after further answers; if it stays, see "
        "--node-deletion-confirmations and --node-deletion-resume, or "
        f"`kubectl delete node {name}`"
    )
    problem = f"the cloud has no machine {id_}"
    return Finding("machine-gone", _about(node), problem, evidence, remedy)


def _not_external(node: Node) -> Finding:
    given = (
        ", ".join(f"{address.type} {address.address}" for address in node.status.addresses)
        or "none"
    )
    annotation = node.metadata.annotations.get(ANNOTATION_PROVIDED_NODE_IP)
    extra = "" if annotation is None else f"; {ANNOTATION_PROVIDED_NODE_IP}: {annotation}"
    return Finding(
        "kubelet-not-external",
        _about(node),
        "its kubelet runs without --cloud-provider=external, so no cloud initialises the node",
        f"it has neither the taint {TAINT_UNINITIALIZED} nor spec.providerID; addresses: "
        f"{given}{extra}",
        "start the kubelet with --cloud-provider=external, `kubectl delete node "
        f"{node.metadata.name}` and restart the kubelet",
    )


def _duplicates(nodes: Iterable[Node]) -> Iterator[Finding]:
    by_id: dict[str, list[str]] = {}
    for node in nodes:
        if node.spec.provider_id:
            by_id.setdefault(node.spec.provider_id, []).append(node.metadata.name)
    for id_, names in by_id.items():
        if len(names) > 1:
            yield Finding(
                "provider-id-duplicate",
                f"node/{names[0]}",
                f"{len(names)} nodes have the same provider id",
                f"spec.providerID {id_}: {', '.join(names)}",
                "delete those that are leftovers: `kubectl delete node NAME`; give each kubelet "
                "its own --provider-id",
            )


def _network(node: Node) -> Iterator[Finding]:
    """Find missing routes and pod CIDRs by the conditions that the manager has written."""
    state = condition(node.status.conditions, routes.CONDITION)
    if state is not None and (state.status, state.reason) == ("True", routes.NOT_CREATED):
        yield Finding(
            "route-missing",
            _about(node),
            "the cloud has no route to this node's pods",
            f"{routes.CONDITION}=True, {state.reason}: {state.message}",
            f"`kubectl describe node {node.metadata.name}` has the cloud's words as events; look "
            "for a full route table and for --cluster-cidr",
        )
    state = condition(node.status.conditions, ipam.CONDITION)
    if state is not None and state.status == "False":
        yield Finding(
            "pod-cidr-missing",
            _about(node),
            "the node has no pod CIDR, or not the cloud's",
            f"{ipam.CONDITION}=False, {state.reason}: {state.message}",
            "correct --cluster-cidr, --node-cidr-mask-size or --cidr-allocator-type",
        )


def _held(observed: Observed) -> Iterator[Finding]:
    nodes = {node.metadata.name: node for node in observed.nodes}
    by_breaker: list[Held] = []
    unproven: dict[str, Held] = {}
    for one in observed.held:
        if one.name in nodes and not is_ready(nodes[one.name]):
            if ANNOTATION_GONE in one.message:
                unproven[one.name] = one
            else:
                by_breaker.append(one)
    if by_breaker:
        names = ", ".join(sorted({one.name for one in by_breaker}))
        yield Finding(
            "deletions-held",
            f"node/{by_breaker[0].name}",
            "too many nodes look gone at once, so none is deleted",
            f"{by_breaker[0].message}; nodes: {names}",
            "find out whether the machines are gone (account, region, outage of the cloud); if "
            "they are, run the manager with --node-deletion-resume",
        )
    for name, one in sorted(unproven.items()):
        yield Finding(
            "deletion-unproven",
            f"node/{name}",
            "the node looks gone, but no Ready node vouches for what the cloud says",
            one.message,
            "find out whether the machine is gone; if it is, `kubectl annotate node "
            f"{name} {ANNOTATION_GONE}=true`",
        )


def _unknown(observed: Observed) -> Iterator[Finding]:
    """Find Ready nodes that the manager's events call unknown, where we have no answer."""
    nodes = {node.metadata.name: node for node in observed.nodes}
    for name, one in sorted({one.name: one for one in observed.unknown}.items()):
        if name in nodes and is_ready(nodes[name]) and _answer(nodes[name], observed) is None:
            id_ = nodes[name].spec.provider_id
            problem = f"the cloud has no machine {id_}, although the node is Ready"
            yield Finding("machine-unknown", f"node/{name}", problem, one.message, _CORRECT)


def _about(node: Node) -> str:
    return f"node/{node.metadata.name}"
