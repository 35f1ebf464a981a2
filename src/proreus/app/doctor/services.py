"""Find what is wrong with Services of type LoadBalancer. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from proreus.app.doctor.observed import Finding, Observed, ago, span
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer
from proreus.controllers.service.conditions import CONDITION, Reason, current_condition
from proreus.controllers.service.intake import (
    TYPE_LOAD_BALANCER,
    has_finalizer,
    service_keys,
    wants,
)
from proreus.kube.objects import (
    LABEL_EXCLUDE_LB,
    TAINT_AUTOSCALER,
    Condition,
    Node,
    Service,
    has_taint,
    key,
)

SLOW: Final = 600.0
"""Seconds after which a load balancer still being created or deleted is reported."""
NAMED: Final = 5
"""How many nodes one text names."""

_LIMIT: Final = re.compile(
    r"limit ?exceeded|quota|exhausted|no (more )?(free )?address|pool", re.IGNORECASE
)
_SOMEBODY: Final = ClusterIdentity("", "")

_EXPLANATIONS: Final[Mapping[str, tuple[str, str, str]]] = {
    Reason.THROTTLED: (
        "cloud-throttled",
        "the cloud's quota of calls is used up",
        "ask for a larger quota, or find who else uses the account",
    ),
    Reason.UNAUTHENTICATED: (
        "cloud-credentials",
        "the cloud refuses the manager's credentials",
        "renew the credentials that --cloud-config gives, or their rights",
    ),
    Reason.CALL_TIMEOUT: (
        "cloud-unavailable",
        "the cloud does not answer in time",
        "check from the manager's pod that the cloud's API answers",
    ),
    Reason.IDENTITY_CONFLICT: (
        "not-ours",
        "something in the cloud has the load balancer's name and is not this Service's",
        "rename or remove what the message names",
    ),
    Reason.NOT_SUPPORTED: (
        "unsupported-spec",
        "the cloud cannot do what the Service asks",
        "change the field that the message names",
    ),
    Reason.INVALID_REQUEST: (
        "unsupported-spec",
        "something is wrong with the Service",
        "change the field or annotation that the message names",
    ),
    Reason.CONFIG_ERROR: (
        "cloud-config",
        "something is wrong with the cloud-config",
        "correct what the message names",
    ),
    Reason.CLOUD_ERROR: (
        "cloud-refuses",
        "the cloud fails to provide the load balancer",
        "the message has the cloud's words; the manager tries again with growing pauses",
    ),
    Reason.HOSTS_REJECTED: (
        "hosts-rejected",
        "the cloud does not take some nodes as targets",
        "correct these nodes, or exclude them with the label " + LABEL_EXCLUDE_LB,
    ),
}


def findings(observed: Observed) -> Iterator[Finding]:
    """Find everything wrong with Services, one after the other."""
    for service in observed.services:
        if service.metadata.deletion_timestamp is not None or not _is_balanced(service):
            if has_finalizer(service):
                yield from _stuck(service, observed)
        elif not wants(service, observed.classes):
            yield from _unowned(service, observed)
        else:
            yield from _service_findings(service, observed)


def _is_balanced(service: Service) -> bool:
    return service.spec.type == TYPE_LOAD_BALANCER


def _unowned(service: Service, observed: Observed) -> Iterator[Finding]:
    """Find a Service whose class neither we nor anybody else serves."""
    is_new = ago(observed.now, service.metadata.creation_timestamp) < observed.patience
    if service.status.load_balancer.ingress or is_new:
        return
    name = service.spec.load_balancer_class
    if name is None:
        yield Finding(
            "class-missing",
            _about(service),
            "the manager leaves Services without a class alone, and nobody else serves this one",
            "spec.loadBalancerClass is not set and --classless-load-balancers is false",
            f"recreate it with a class of {', '.join(sorted(observed.classes.owned)) or 'yours'}, "
            "or run the manager with --classless-load-balancers",
        )
    else:
        yield Finding(
            "class-unowned",
            _about(service),
            f"nobody makes load balancers of the class {name}",
            f"spec.loadBalancerClass is {name}; --load-balancer-classes is "
            f"{', '.join(sorted(observed.classes.owned)) or 'empty'}; the status has no address",
            f"run the manager with --load-balancer-classes={name}, install the controller of this "
            "class, or recreate the Service without a class (it cannot be changed)",
        )


def _stuck(service: Service, observed: Observed) -> Iterator[Finding]:
    """Find a finalizer that stays on a Service which should have no load balancer."""
    state, now = current_condition(service), observed.now
    since = service.metadata.deletion_timestamp or (state and state.last_transition_time)
    is_failing = state is not None and state.reason.startswith("Delete")
    if (
        ago(now, since or service.metadata.creation_timestamp) < observed.patience
        and not is_failing
    ):
        return
    why = "it is being deleted" if service.metadata.deletion_timestamp else (
        f"its type is {service.spec.type} now"
    )  # fmt: skip
    words = f"; {CONDITION}: {state.reason}: {state.message}" if state else ""
    name = service.spec.load_balancer_class
    owner = "the controller of its class" if name else "the manager"
    yield Finding(
        "finalizer-stuck",
        _about(service),
        "the Service waits for its load balancer to be deleted",
        f"{why}{f' for {span(ago(now, since))}' if since else ''}, and has its finalizer{words}",
        f"see that {owner} runs and may delete in the cloud; take the finalizer away by hand only "
        "if the load balancer is gone: it would be left behind",
    )


def _service_findings(service: Service, observed: Observed) -> Iterator[Finding]:
    desired = _desired(service, observed)
    if isinstance(desired, CloudError):
        problem = "the Service asks for something impossible"
        remedy = "change the field or annotation that the message names"
        yield Finding("unsupported-spec", _about(service), problem, str(desired), remedy)
        return
    if not desired.hosts:
        yield _no_hosts(service, observed)
    else:
        yield from _endpoints(service, desired, observed)
    state = current_condition(service)
    if state is not None:
        yield from _from_condition(service, state, observed)
    elif not service.status.load_balancer.ingress:
        age = ago(observed.now, service.metadata.creation_timestamp)
        if age >= observed.patience:
            yield Finding(
                "service-unattended",
                _about(service),
                "no manager handles this Service",
                f"it was made {span(age)} ago and has neither an address nor the condition "
                f"{CONDITION}",
                "look first at the findings about the manager; is the controller `service` in "
                "its --controllers?",
            )


def _desired(service: Service, observed: Observed) -> LoadBalancer | CloudError:
    policy: HostPolicy | CloudError = HostPolicy()
    if observed.cloud is not None:
        policy = observed.cloud.policies.get(key(service), policy)
    if isinstance(policy, CloudError):
        return policy
    try:
        return desired_load_balancer(service, observed.nodes, policy, _SOMEBODY)
    except CloudError as exc:
        return exc


def _no_hosts(service: Service, observed: Observed) -> Finding:
    reasons = [f"{node.metadata.name}: {_why_no_host(node)}" for node in observed.nodes[:NAMED]]
    if len(observed.nodes) > NAMED:
        reasons.append(f"and {len(observed.nodes) - NAMED} more")
    return Finding(
        "no-hosts",
        _about(service),
        "no node can be a target of the load balancer",
        "; ".join(reasons) or "there are no nodes",
        "initialise the nodes (see the findings about them), or remove the label: "
        f"`kubectl label node NAME {LABEL_EXCLUDE_LB}-`",
    )


def _why_no_host(node: Node) -> str:
    if node.metadata.deletion_timestamp is not None:
        return "the Node is being deleted"
    if has_taint(node, TAINT_AUTOSCALER):
        return "the autoscaler is removing the node"
    if not node.spec.provider_id:
        return "the Node has no spec.providerID yet"
    if LABEL_EXCLUDE_LB in node.metadata.labels:
        return f"the Node has the label {LABEL_EXCLUDE_LB}"
    return "the Service's node selector does not match the Node"


def _endpoints(service: Service, desired: LoadBalancer, observed: Observed) -> Iterator[Finding]:
    """Find that no pod behind the Service is ready, or with local traffic none on a target."""
    if observed.slices is None:
        return
    ready = [
        endpoint
        for one in observed.slices
        if key(service) in service_keys(one)
        for endpoint in one.endpoints or ()
        if endpoint.conditions.ready is not False
    ]
    if not ready:
        yield Finding(
            "no-endpoints",
            _about(service),
            "no pod behind the Service is ready, so the load balancer finds no healthy target",
            "its EndpointSlices have no ready endpoint",
            f"kubectl -n {service.metadata.namespace} get pods; compare their labels with "
            "spec.selector",
        )
        return
    hosts = sorted(host.node for host in desired.hosts)
    nodes = sorted({endpoint.node_name or "" for endpoint in ready})
    if desired.local_traffic and not set(hosts) & set(nodes):
        yield Finding(
            "local-without-hosts",
            _about(service),
            "no node with a ready pod is a target, and externalTrafficPolicy is Local",
            f"ready pods on {', '.join(nodes)}; targets: {', '.join(hosts[:NAMED])}",
            "let pods run on the targets, or set spec.externalTrafficPolicy: Cluster",
        )


def _from_condition(service: Service, state: Condition, observed: Observed) -> Iterator[Finding]:
    evidence = f"{CONDITION}={state.status}, {state.reason}: {state.message}"
    if state.reason == Reason.PROVISIONING:
        since = ago(observed.now, state.last_transition_time)
        if since >= SLOW:
            yield Finding(
                "slow-cloud",
                _about(service),
                f"the load balancer has been provisioning for {span(since)}",
                evidence,
                "look at the load balancer in the cloud's console, and at the manager's log",
            )
        return
    explanation = _EXPLANATIONS.get(state.reason)
    if explanation is None:
        return
    check, problem, remedy = explanation
    if state.reason == Reason.CLOUD_ERROR and _LIMIT.search(state.message):
        check, problem = "cloud-limit", "a limit of the cloud is reached"
        remedy = "free addresses or load balancers, or ask for a larger limit or pool"
    yield Finding(check, _about(service), problem, evidence, remedy)


def _about(service: Service) -> str:
    return f"service/{key(service)}"
