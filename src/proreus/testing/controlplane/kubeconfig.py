"""Render kubeconfig files."""

import base64
from collections.abc import Mapping

import yaml


def render(*, url: str, ca: bytes, user: str, certificate: bytes, key: bytes) -> str:
    """Render a kubeconfig for one user of one cluster, everything inline; `ca` and so on are PEM.

    https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
    """
    identity = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    return _render(url, ca, user, identity)


def render_token(*, url: str, ca: bytes, user: str, token: str) -> str:
    """Render a kubeconfig for a user who has a bearer token."""
    return _render(url, ca, user, {"token": token})


def _render(url: str, ca: bytes, user: str, identity: Mapping[str, str]) -> str:
    cluster = {"server": url, "certificate-authority-data": _base64(ca)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": dict(identity)}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }
    return yaml.safe_dump(document, sort_keys=False)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
