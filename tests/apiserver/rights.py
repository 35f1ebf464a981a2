"""Managers in tests have the rights that `proreus roles` prints, and none besides."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from proreus.app.options import Options
from proreus.app.rights import ACCOUNT, ROLE
from proreus.app.roles import objects
from proreus.kube.client import Client
from proreus.kube.errors import AlreadyExists
from proreus.kube.requests import Request
from proreus.testing.controlplane import ControlPlane

MANAGERS: Final = "tested-managers"
"""The group of managers that have one account."""
APART: Final = "tested-managers-apart"
"""The group of managers whose controllers have accounts of their own."""
ACCOUNTS: Final = "system:serviceaccount:kube-system:"

SECRET: Final = "kube-system/cloud/cloud.conf"
GRANTED: Final = (
    (MANAGERS, Options(leader_elect_per_controller=True)),
    (MANAGERS, Options(enable_leader_migration=True)),
    (
        MANAGERS,
        Options(leader_elect_resource_name="own-lease", leader_elect_resource_namespace="default"),
    ),
    (MANAGERS, Options(cloud_config_secret=SECRET)),
    (MANAGERS, Options(cloud_provider="gce")),
    (MANAGERS, Options(controllers=("kubelet-serving",))),
    (MANAGERS, Options(controllers=("persistentvolume-label-controller",))),
    (MANAGERS, Options(webhooks=("*",))),
    (MANAGERS, Options(controllers=("nodelifecycle",))),
    (APART, Options(use_service_account_credentials=True)),
    (APART, Options(use_service_account_credentials=True, controllers=("kubelet-serving",))),
    (APART, Options(use_service_account_credentials=True, controllers=("nodelifecycle",))),
)
"""The flags whose roles each group has: all together what tests give to managers."""

_PLURALS: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
_granted: set[Path] = set()


def granted_objects() -> Iterator[dict[str, Any]]:
    """The roles under names of their own, since other tests make and delete the real ones."""
    for number, (group, options) in enumerate(GRANTED):
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
        for one in objects(options, subjects={ACCOUNT: subject}):
            if one["kind"] not in _PLURALS:
                continue  # the manager makes accounts itself
            meta = {**one["metadata"], "name": _renamed(one["metadata"]["name"], number)}
            renamed = {**one, "metadata": meta}
            if "roleRef" in one:
                ref = one["roleRef"]
                renamed["roleRef"] = {**ref, "name": _renamed(ref["name"], number)}
            yield renamed


def _renamed(name: str, number: int) -> str:
    return name.replace(ROLE, f"tested-{number}")


async def grant(plane: ControlPlane, client: Client) -> tuple[Mapping[str, Any], ...]:
    """Make the roles, once for a control plane; what must count before a manager starts.

    Later that is a role of each kind: a test before may have restarted the API server, whose
    authorizer forgets them all until it has read them again.
    """
    made = tuple(granted_objects())
    if plane.directory in _granted:
        return tuple(one for one in made if one["metadata"]["name"] == made[0]["metadata"]["name"])
    for one in made:
        namespace = one["metadata"].get("namespace", "")
        place = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/{one['apiVersion']}{place}/{_PLURALS[one['kind']]}"
        body = json.dumps(one).encode()
        try:
            await client.send(
                Request("POST", path, body=body, content_type="application/json"), dict[str, Any]
            )
        except AlreadyExists:
            continue
    _granted.add(plane.directory)
    return made


async def count(client: Client, made: tuple[Mapping[str, Any], ...]) -> bool:
    """Whether the API server's authorizer, which learns by watches, knows all of them."""
    rules = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")): one["rules"]
        for one in made
        if "rules" in one
    }
    for binding in made:
        if "roleRef" not in binding:
            continue
        ref, namespace = binding["roleRef"], binding["metadata"].get("namespace")
        (subject,) = binding["subjects"]
        for rule in rules[ref["kind"], ref["name"], namespace]:
            if not await _may(client, subject, rule, namespace or ""):
                return False
    return True


async def _may(
    client: Client, subject: Mapping[str, Any], rule: Mapping[str, Any], namespace: str
) -> bool:
    resource, _, subresource = rule["resources"][0].partition("/")
    who = (
        {"user": "anyone", "groups": [subject["name"]]}
        if subject["kind"] == "Group"
        else {"user": f"{ACCOUNTS}{subject['name']}"}
    )
    asked = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "name": rule.get("resourceNames", [""])[0],
        "verb": rule["verbs"][0],
    }
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    body = json.dumps({**kind, "spec": {**who, "resourceAttributes": asked}}).encode()
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    request = Request("POST", path, body=body, content_type="application/json")
    answer = await client.send(request, dict[str, Any])
    return bool(answer["status"]["allowed"])


def refused(log: Path, start: int) -> list[str]:
    """What the audit log has, from there on, of requests of managers that were forbidden."""
    with log.open("rb") as file:
        file.seek(start)
        lines = [
            json.loads(line) for line in file if b'"code":403' in line and line.endswith(b"\n")
        ]
    return [
        f"{line['user']['username']} may not {line['verb']} {line['requestURI']}"
        for line in lines
        if {MANAGERS, APART} & set(line["user"].get("groups", ()))
        or line["user"]["username"].startswith(ACCOUNTS)
    ]
