"""Read kubeconfig files as kubectl does.

Paths are relative to the file, what ends in `-data` is base64, `tokenFile` wins over `token`, and
both, like a client certificate, over `exec`. Of several files the first that has a name, or sets
current-context, counts. All that is wrong is reported at once, with the field's path and without
its value. https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import base64
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proreus.kube.clientconfig import (
    ClientConfig,
    FileToken,
    Impersonation,
    checked_server,
    checked_token,
)
from proreus.kube.errors import ConfigError
from proreus.kube.execplugin import API_VERSIONS, ExecPlugin
from proreus.kube.fields import Fields, read_document
from proreus.kube.proxies import checked_proxy

_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster that its exec plugin gets as `spec.cluster.config`."""

_INTERACTIVE = ("Never", "IfAvailable", "Always")

_BASIC = "basic authentication is gone since Kubernetes 1.19: use a token, a certificate or exec"
_PROVIDERS = {
    "gcp": "gke-gcloud-auth-plugin",
    "azure": "kubelogin (its convert-kubeconfig rewrites this file)",
    "oidc": "kubelogin (kubectl oidc-login)",
}


def from_files(
    paths: Sequence[Path], master: str, context: str, problems: list[str]
) -> ClientConfig | None:
    """Read the context named `context`, or the current one; `master` replaces its server.

    Problems are appended to `problems`; the answer is then of no use.
    """
    documents = [read_document(path, problems) for path in paths]
    tops = [document for document in documents if document is not None]
    if not tops:
        return None
    clusters = _merged(tops, "clusters", "cluster")
    users = _merged(tops, "users", "user")
    contexts = _merged(tops, "contexts", "context")
    first = next((top for top in tops if top.given("current-context")), tops[0])
    chosen = _pick(first, "current-context", contexts, context)
    if chosen is None:
        return None
    cluster, user = _pick(chosen, "cluster", clusters), _pick(chosen, "user", users)
    config = ClientConfig(server="", namespace=chosen.text("namespace"))
    if user is not None:
        config = _with_user(config, user)
    if cluster is not None:
        config = _with_cluster(config, cluster, master, problems)
    return config


def _merged(tops: Sequence[Fields], field: str, inner: str) -> dict[str, Fields]:
    """Merge the entries of all files; of two with one name the first counts, whole."""
    merged: dict[str, Fields] = {}
    for top in tops:
        merged = {**top.entries(field, inner), **merged}
    return merged


def _pick(
    fields: Fields, field: str, among: Mapping[str, Fields], override: str = ""
) -> Fields | None:
    """Return the entry that the field names, or that `override` names."""
    name = override or fields.text(field)
    if name in among:
        return among[name]
    known = ", ".join(sorted(among)) or "none"
    text = f"there is no {name!r}" if name else "is not set"
    fields.problem(field, f"{text} (there are: {known})")
    return None


def _with_user(config: ClientConfig, user: Fields) -> ClientConfig:
    _refuse_removed(user)
    certificate, key = user.content("client-certificate"), user.content("client-key")
    for given, other in (
        ("client-certificate", "client-key"),
        ("client-key", "client-certificate"),
    ):
        if user.has_content(given) and not user.has_content(other):
            user.problem(other, f"is needed with {given}")
    token = _token(user)
    plugin = _plugin(user.mapping("exec")) if user.given("exec") else None
    return msgspec.structs.replace(
        config,
        client_certificate=certificate,
        client_key=key,
        token=token,
        exec_plugin=None if token or certificate else plugin,
        impersonation=_impersonation(user),
    )


def _refuse_removed(user: Fields) -> None:
    """Report credentials that Kubernetes no longer supports, with the remedy."""
    for field in ("username", "password"):
        if user.given(field):
            user.problem(field, _BASIC)
    if user.given("auth-provider"):
        name = user.mapping("auth-provider").text("name")
        instead = _PROVIDERS.get(name, "the provider's plugin")
        user.problem("auth-provider", f"is gone since Kubernetes 1.26: use exec with {instead}")


def _token(user: Fields) -> str | FileToken:
    token: str | FileToken = user.text("token")
    if token:
        try:
            token = checked_token(str(token).encode())
        except ValueError as exc:
            user.problem("token", str(exc))
    token_file = user.file("tokenFile")
    if token_file is not None:
        token = FileToken(token_file, fallback=str(token))
        try:
            token()
        except ConfigError as exc:
            user.problem("tokenFile", str(exc))
    return token


def _impersonation(user: Fields) -> Impersonation | None:
    extra = user.mapping("as-user-extra")
    other = Impersonation(
        user=user.text("as"),
        uid=user.text("as-uid"),
        groups=user.texts("as-groups"),
        extra={name: extra.texts(name) for name in extra.names()},
    )
    if other == Impersonation():
        return None
    if not user.given("as"):
        user.problem("as", "is needed with as-uid, as-groups and as-user-extra")
    values = (other.user, other.uid, *other.groups, *(v for vs in other.extra.values() for v in vs))
    if not all(value.isprintable() for value in values):
        user.problem("as", "this, or a field beside it, cannot be sent in a header")
    return other


def _plugin(fields: Fields) -> ExecPlugin:
    command, version = fields.text("command"), fields.text("apiVersion")
    if os.sep in command:
        command = str(fields.beside(command))
    if version not in API_VERSIONS:
        fields.problem("apiVersion", f"must be one of {', '.join(API_VERSIONS)}")
    mode = fields.text("interactiveMode")
    if mode == "Always":
        fields.problem("interactiveMode", "is Always, but nobody can answer a prompt here")
    elif mode and mode not in _INTERACTIVE:
        fields.problem("interactiveMode", f"must be one of {', '.join(_INTERACTIVE)}")
    elif not mode and version == API_VERSIONS[0]:
        fields.problem("interactiveMode", "is not set; give Never")
    plugin = ExecPlugin(
        command=command,
        args=fields.texts("args"),
        env={item.text("name"): item.text("value") for item in fields.items("env")},
        api_version=version,
        install_hint=fields.text("installHint"),
        cluster={} if fields.flag("provideClusterInfo") else None,
    )
    if "" in plugin.env:
        fields.problem("env", "a name is not set")
    if not command:
        fields.problem("command", "is not set")
    elif shutil.which(command) is None:
        fields.problem("command", plugin.not_found())
    return plugin


def _with_cluster(
    config: ClientConfig, cluster: Fields, master: str, problems: list[str]
) -> ClientConfig:
    ca = cluster.content("certificate-authority")
    insecure = cluster.flag("insecure-skip-tls-verify")
    if insecure and cluster.has_content("certificate-authority"):
        cluster.problem("insecure-skip-tls-verify", "contradicts certificate-authority")
    server, where = cluster.text("server"), cluster.name("server")
    tls_server_name = cluster.text("tls-server-name")
    if master:
        server, where, tls_server_name = master, "--master", ""
    is_tls = insecure or ca is not None or config.client_certificate is not None
    proxy = cluster.text("proxy-url")
    if proxy:
        proxy = checked_proxy(proxy, cluster.name("proxy-url"), problems)
    config = msgspec.structs.replace(
        config,
        server=checked_server(server, where, problems, is_tls=is_tls),
        ca=ca,
        insecure_skip_tls_verify=insecure,
        tls_server_name=tls_server_name,
        proxy=proxy,
    )
    plugin = config.exec_plugin
    if not isinstance(plugin, ExecPlugin) or plugin.cluster is None:
        return config
    plugin = msgspec.structs.replace(plugin, cluster=_cluster_info(config, cluster))
    return msgspec.structs.replace(config, exec_plugin=plugin)


def _cluster_info(config: ClientConfig, cluster: Fields) -> dict[str, Any]:
    """Return the cluster's data for an exec plugin with provideClusterInfo."""
    try:
        ca = config.in_memory().ca
    except ConfigError:  # reported where the field was read
        ca = None
    info = {
        "server": config.server,
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(ca).decode()
        if isinstance(ca, bytes)
        else "",
        "proxy-url": config.proxy,
    }
    extensions = cluster.items("extensions")
    own = [item.raw("extension") for item in extensions if item.raw("name") == _EXTENSION]
    return {key: value for key, value in {**info, "config": next(iter(own), None)}.items() if value}
