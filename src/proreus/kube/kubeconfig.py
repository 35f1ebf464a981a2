"""Kubeconfig files, as kubectl understands them.

Paths are relative to the file, what ends in `-data` is base64, `tokenFile` wins over `token`.
All that is wrong is reported at once, with the field's path and without its value.
https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proreus.kube.clientconfig import (
    ClientConfig,
    FileToken,
    checked_server,
    checked_token,
    read_file,
)
from proreus.kube.errors import ConfigError

_CLUSTER_NOT_SUPPORTED = ("proxy-url",)
_USER_NOT_SUPPORTED = (
    "exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra",
)  # fmt: skip


class _Fields:
    """One mapping of the file. What is wrong with a field becomes a problem with its path."""

    def __init__(self, path: Path, where: str, fields: Any, problems: list[str]) -> None:
        self._path = path
        self._where = where
        self._problems = problems
        self._fields: Mapping[str, Any] = {}
        if isinstance(fields, Mapping):
            self._fields = fields
        elif fields is not None:
            self.problem("", "is not a mapping")

    def problem(self, field: str, text: str) -> None:
        """Report a fault of the field (of the whole mapping: "")."""
        name = ".".join(filter(None, (self._where, field)))
        self._problems.append(f"{self._path}: {name}: {text}" if name else f"{self._path}: {text}")

    def name(self, field: str) -> str:
        """The field's path with the file's, for a problem found elsewhere."""
        return f"{self._path}: {self._where}.{field}"

    def given(self, field: str) -> bool:
        """Whether the field has a value that is not empty."""
        return bool(self._fields.get(field))

    def text(self, field: str) -> str:
        """A string, "" if it is not there."""
        value = self._fields.get(field)
        if value is None or isinstance(value, str):
            return value or ""
        self.problem(field, "is not a string (quote it)")
        return ""

    def flag(self, field: str) -> bool:
        """A boolean, false if it is not there."""
        value = self._fields.get(field, False)
        if isinstance(value, bool) or value is None:
            return bool(value)
        self.problem(field, "is neither true nor false")
        return False

    def file(self, field: str) -> Path | None:
        """A path, relative to the file's directory."""
        value = self.text(field)
        return self._path.parent / value if value else None

    def content(self, field: str) -> bytes | None:
        """What stands base64-encoded in `field-data`, or in the file that `field` names."""
        data, path = self.text(f"{field}-data"), self.file(field)
        if data and path:
            self.problem(field, f"give either this or {field}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except binascii.Error:
                self.problem(f"{field}-data", "is not base64")
        elif path:
            return read_file(path, self.name(field), self._problems)
        return None

    def entries(self, field: str, inner: str) -> dict[str, "_Fields"]:
        """A list of `{name: …, <inner>: {…}}` by name."""
        listed = self._fields.get(field) or ()
        if isinstance(listed, str | Mapping) or not isinstance(listed, Iterable):
            self.problem(field, "is not a list")
            return {}
        found: dict[str, _Fields] = {}
        for index, entry in enumerate(listed):
            fields = _Fields(self._path, f"{field}[{index}]", entry, self._problems)
            name = fields.text("name")
            if not fields.given("name"):
                fields.problem("name", "is not set")
            elif name in found:
                fields.problem("name", f"{name} is there twice")
            else:
                where = f"{field}[{name}].{inner}"
                found[name] = _Fields(self._path, where, fields._fields.get(inner), self._problems)
        return found

    def has_content(self, field: str) -> bool:
        """Whether there is something for `content` to read."""
        return self.given(field) or self.given(f"{field}-data")

    def refuse(self, fields: Iterable[str]) -> None:
        """Report the fields that would be needed and are not supported."""
        for field in fields:
            if self.given(field):
                self.problem(field, "is not supported yet")


def from_file(path: Path, master: str, context: str, problems: list[str]) -> ClientConfig | None:
    """Read the context named `context`, or the current one; `master` replaces its server.

    What is wrong is appended to `problems`; then the answer is of no use.
    """
    document = _document(path, problems)
    if document is None:
        return None
    top = _Fields(path, "", document, problems)
    if top.given("kind") and top.text("kind") != "Config":
        top.problem("kind", "is not Config: this is no kubeconfig")
    clusters, users = top.entries("clusters", "cluster"), top.entries("users", "user")
    contexts = top.entries("contexts", "context")
    chosen = _pick(top, "current-context", contexts, context)
    if chosen is None:
        return None
    cluster, user = _pick(chosen, "cluster", clusters), _pick(chosen, "user", users)
    config = ClientConfig(server="", namespace=chosen.text("namespace"))
    if user is not None:
        config = _with_user(config, user)
    if cluster is not None:
        config = _with_cluster(config, cluster, master, problems)
    return config


def _pick(
    fields: _Fields, field: str, among: Mapping[str, _Fields], override: str = ""
) -> _Fields | None:
    """The entry that the field names, or `override` does."""
    name = override or fields.text(field)
    if name in among:
        return among[name]
    known = ", ".join(sorted(among)) or "none"
    text = f"there is no {name!r}" if name else "is not set"
    fields.problem(field, f"{text} (there are: {known})")
    return None


def _with_user(config: ClientConfig, user: _Fields) -> ClientConfig:
    user.refuse(_USER_NOT_SUPPORTED)
    certificate, key = user.content("client-certificate"), user.content("client-key")
    for given, other in (
        ("client-certificate", "client-key"),
        ("client-key", "client-certificate"),
    ):
        if user.has_content(given) and not user.has_content(other):
            user.problem(other, f"is needed with {given}")
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
    return msgspec.structs.replace(
        config, client_certificate=certificate, client_key=key, token=token
    )


def _with_cluster(
    config: ClientConfig, cluster: _Fields, master: str, problems: list[str]
) -> ClientConfig:
    cluster.refuse(_CLUSTER_NOT_SUPPORTED)
    ca = cluster.content("certificate-authority")
    insecure = cluster.flag("insecure-skip-tls-verify")
    if insecure and cluster.has_content("certificate-authority"):
        cluster.problem("insecure-skip-tls-verify", "contradicts certificate-authority")
    server, where = cluster.text("server"), cluster.name("server")
    tls_server_name = cluster.text("tls-server-name")
    if master:
        server, where, tls_server_name = master, "--master", ""
    is_tls = insecure or ca is not None or config.client_certificate is not None
    return msgspec.structs.replace(
        config,
        server=checked_server(server, where, problems, is_tls=is_tls),
        ca=ca,
        insecure_skip_tls_verify=insecure,
        tls_server_name=tls_server_name,
    )


def _document(path: Path, problems: list[str]) -> Mapping[str, Any] | None:
    content = read_file(path, "kubeconfig", problems)
    if content is None:
        return None
    try:
        document = yaml.safe_load(content)
    except yaml.MarkedYAMLError as exc:
        # Not the error itself: it quotes the line, which may hold a token.
        line = f"line {exc.problem_mark.line + 1}: " if exc.problem_mark else ""
        problems.append(f"{path}: {line}is not YAML: {exc.problem}")
        return None
    except (yaml.YAMLError, ValueError):
        problems.append(f"{path}: is not YAML")
        return None
    if not isinstance(document, Mapping):
        problems.append(f"{path}: is not a mapping: this is no kubeconfig")
        return None
    return document
