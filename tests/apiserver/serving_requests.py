"""Requests of kubelets for serving certificates, as users of the API server make them."""

import base64
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.errors import AlreadyExists, Forbidden, NotFound
from proreus.kube.objects import CertificateSigningRequest, Node, condition
from proreus.kube.requests import CERTIFICATE_SIGNING_REQUESTS, JSON, Request
from proreus.testing.controlplane.certificates import signing_request
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from .site import Site

SIGNER: Final = "kubernetes.io/kubelet-serving"
NODES: Final = "system:nodes"
_RBAC: Final = "rbac.authorization.k8s.io"
_BINDING: Final = {
    "apiVersion": f"{_RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "nodes-ask-for-certificates"},
    "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
    "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": NODES}],
}


async def let_kubelets_ask(site: Site) -> None:
    """Give kubelets the right to ask, which the node authorizer gives on a real cluster."""
    path, body = f"/apis/{_RBAC}/v1/clusterrolebindings", msgspec.json.encode(_BINDING)
    with suppress(AlreadyExists):
        await site.client.send(Request("POST", path, body=body, content_type=JSON), dict[str, Any])


async def ask(
    site: Site,
    name: str,
    *,
    names: Iterable[str] | None = None,
    addresses: Sequence[str] = (),
    user: str = "",
    groups: Sequence[str] = (NODES,),
    request: bytes = b"",
    asked: str = "",
    **spec: Any,
) -> str:
    """Let the kubelet of a node ask, by default for the node's name; the request's name."""
    user = user or f"system:node:{name}"
    asked = asked or f"csr-{name}"
    pem = request or signing_request(
        f"system:node:{name}", [NODES], [name] if names is None else list(names), addresses
    )
    body = {
        "metadata": {"name": asked},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "server auth"],
            **spec,
        },
    }
    kubeconfig = str(site.plane.kubeconfig_for(user, groups))

    async def may_ask() -> bool:
        async with Client(config.load(kubeconfig, env={})) as kubelet:
            try:
                await kubelet.create(CERTIFICATE_SIGNING_REQUESTS, body)
            except Forbidden:  # the authorizer learns of roles by a watch
                return False
        return True

    await until(f"{user} asks", may_ask)
    return asked


async def of_node(site: Site, node: Node, **more: Any) -> str:
    """Let a node's kubelet ask for the names and addresses of its Node, as a real one does."""
    listed = node.status.addresses
    return await ask(
        site,
        node.metadata.name,
        names=[one.address for one in listed if not one.type.endswith("IP")],
        addresses=[one.address for one in listed if one.type.endswith("IP")],
        **more,
    )


async def ask_as_machine(site: Site, machine: Instance) -> None:
    """Let the kubelet of a machine ask; the request has the machine's name, as its node has."""
    name = machine.name
    with suppress(NotFound):  # of a node that had the name before
        await site.client.delete(CERTIFICATE_SIGNING_REQUESTS, name)
    addresses = [one.address for one in machine.addresses if one.type.endswith("IP")]
    await ask(site, name, addresses=addresses, asked=name)


async def all_approved(site: Site) -> set[str]:
    """The names of all requests that are approved."""
    requests = (await site.client.list(CERTIFICATE_SIGNING_REQUESTS)).items
    return {one.metadata.name for one in requests if condition(one.status.conditions, "Approved")}


async def found(site: Site, asked: str) -> CertificateSigningRequest:
    """The request as it is now."""
    return await site.client.get(CERTIFICATE_SIGNING_REQUESTS, asked)


async def approved(site: Site, asked: str) -> str:
    """Wait until the request is approved; the message."""

    async def is_approved() -> str | None:
        known = condition((await found(site, asked)).status.conditions, "Approved")
        return None if known is None or known.status != "True" else known.message

    return await until(f"{asked} is approved", is_approved)
