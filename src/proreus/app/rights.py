"""Generate the manager's roles from what controllers and the process declare. Pure.

Roles are bound to the manager's own account or, with `--use-service-account-credentials`, each
controller's to that controller's. Caches and events are the process's own in both cases: all
controllers share them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.app import webhooks
from proreus.app.board import NEED, lease_name
from proreus.app.caches import ENDPOINT_SLICES_NEED, NAMESPACES_NEED, config_map_names
from proreus.app.options import Options
from proreus.controllers.table import ON_BY_DEFAULT, Descriptor, Rule

ACCOUNT: Final = "cloud-controller-manager"
"""The manager's service account, in kube-system."""

ROLE: Final = f"system:{ACCOUNT}"
"""The name of the manager's roles, and the prefix of those of other accounts."""

SYSTEM: Final = "kube-system"
"""The namespace of all accounts."""

READS: Final = frozenset({"get", "list", "watch"})
SHARED: Final = frozenset({"nodes", "services", "endpointslices", "events"})
"""The resources that the process reads into caches of all controllers, and those of the recorder.
"""
_RBAC: Final = "rbac.authorization.k8s.io"


class Role(msgspec.Struct, frozen=True):
    """Rules for an account of kube-system; an empty `namespace` means a ClusterRole."""

    name: str
    account: str
    rules: tuple[Rule, ...]
    namespace: str = ""


def own(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return a controller's own rules, without those of the shared caches and the recorder."""
    found = []
    for rule in rules:
        is_shared = rule.resource in SHARED
        verbs = tuple(verb for verb in rule.verbs if not (is_shared and verb in READS))
        if verbs and rule.resource != "events":
            found.append(msgspec.structs.replace(rule, verbs=verbs))
    return tuple(found)


def roles(
    options: Options,
    *,
    chosen: Sequence[Descriptor] = ON_BY_DEFAULT,
    leases: Sequence[str] = (),
    needs: frozenset[str] = frozenset({ENDPOINT_SLICES_NEED, NAMESPACES_NEED, NEED}),
) -> tuple[Role, ...]:
    """Return the roles of a manager with these flags.

    Args:
        options: The flags.
        chosen: The controllers that the manager runs.
        leases: The names of the leases that it campaigns for.
        needs: The caches that the provider asks for, as in `CloudProvider.needs`.
    """
    accounts: dict[str, list[Rule]] = defaultdict(list)
    for one in chosen:
        accounts[one.account].extend(own(one.rules))
    apart = options.use_service_account_credentials
    main = [*_shared(needs), *webhooks.rules(options)]
    if not apart:
        main.extend(rule for rules in accounts.values() for rule in rules)
    if options.secure_port:
        main.append(Rule("authentication.k8s.io", "tokenreviews", ("create",)))
        main.append(Rule("authorization.k8s.io", "subjectaccessreviews", ("create",)))
    found = [Role(ROLE, ACCOUNT, merged(main))]
    for namespace, rules in _namespaced(options, leases, needs).items():
        found.append(Role(ROLE, ACCOUNT, merged(rules), namespace))
    if apart:
        names = tuple(sorted(accounts))
        create = (
            Rule("", "serviceaccounts", ("create",)),
            Rule("", "serviceaccounts/token", ("create",), names),
        )
        found.append(Role(f"{ROLE}:accounts", ACCOUNT, create, SYSTEM))
        found.extend(Role(f"{ROLE}:{name}", name, merged(accounts[name])) for name in names)
    return tuple(found)


def _shared(needs: frozenset[str]) -> tuple[Rule, ...]:
    cached = ("get", "list", "watch")
    slices = (Rule("discovery.k8s.io", "endpointslices", ("list", "watch")),)
    namespaces = (Rule("", "namespaces", ("list", "watch")),)
    return (
        Rule("", "namespaces", ("get",), (SYSTEM,)),
        Rule("", "nodes", cached),
        Rule("", "services", cached),
        Rule("", "events", ("create", "patch")),
        *(slices if ENDPOINT_SLICES_NEED in needs else ()),
        *(namespaces if NAMESPACES_NEED in needs else ()),
    )


def _namespaced(
    options: Options, leases: Sequence[str], needs: frozenset[str]
) -> Mapping[str, list[Rule]]:
    found: dict[str, list[Rule]] = defaultdict(list)
    if options.leader_elect:
        group = "coordination.k8s.io"
        place = found[options.leader_elect_resource_namespace]
        names = tuple(leases) or (options.leader_elect_resource_name,)
        if NEED in needs:
            names += (lease_name(options.leader_elect_resource_name),)
        place.append(Rule(group, "leases", ("create",)))
        place.append(Rule(group, "leases", ("get", "list", "watch", "update"), names))
    if options.secure_port and not options.authentication_skip_lookup:
        name = "extension-apiserver-authentication"
        found[SYSTEM].append(Rule("", "configmaps", ("get", "list", "watch"), (name,)))
    if names := config_map_names(needs):
        found[SYSTEM].append(Rule("", "configmaps", ("get",), names))
    if options.cloud_config_secret:
        namespace, name, *_ = options.cloud_config_secret.split("/")
        found[namespace].append(Rule("", "secrets", ("get", "list", "watch"), (name,)))
    return found


def merged(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Merge rules into one for each resource and set of names, in a fixed order."""
    verbs: dict[tuple[str, str, tuple[str, ...]], dict[str, None]] = {}
    for rule in rules:
        place = verbs.setdefault((rule.group, rule.resource, rule.names), {})
        place.update(dict.fromkeys(rule.verbs))
    return tuple(
        Rule(group, resource, tuple(found), names)
        for (group, resource, names), found in sorted(verbs.items())
    )


def manifests(
    all_roles: Sequence[Role], subjects: Mapping[str, Mapping[str, str]] | None = None
) -> list[dict[str, Any]]:
    """Return ServiceAccounts, roles and bindings as objects of the API.

    Args:
        all_roles: The roles to write.
        subjects: The subjects that stand for accounts in bindings; such accounts are not made.
    """
    known = subjects or {}
    accounts = dict.fromkeys(role.account for role in all_roles if role.account not in known)
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(name, SYSTEM)}
        for name in accounts
    ]
    for role in all_roles:
        kind = "Role" if role.namespace else "ClusterRole"
        default = {"kind": "ServiceAccount", "name": role.account, "namespace": SYSTEM}
        subject = dict(known.get(role.account, default))
        ref = {"apiGroup": _RBAC, "kind": kind, "name": role.name}
        objects.append(_object(role, kind, rules=[_rule(rule) for rule in role.rules]))
        objects.append(_object(role, f"{kind}Binding", roleRef=ref, subjects=[subject]))
    return objects


def _object(role: Role, kind: str, **more: Any) -> dict[str, Any]:
    meta = _meta(role.name, role.namespace)
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, **more}


def _meta(name: str, namespace: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _rule(rule: Rule) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiGroups": [rule.group],
        "resources": [rule.resource],
        "verbs": list(rule.verbs),
    }
    if rule.names:
        found["resourceNames"] = list(rule.names)
    return found
