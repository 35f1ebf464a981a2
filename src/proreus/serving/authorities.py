"""Keep the authorities of clients' certificates current: from files, else from the cluster.

The API server publishes its own in the ConfigMap kube-system/extension-apiserver-authentication.
What a flag names counts instead. One bundle that cannot be read leaves that one as it was.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509

from proreus.kube import requests
from proreus.kube.client import Client
from proreus.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from proreus.kube.objects import ConfigMap
from proreus.kube.requests import CONFIG_MAPS
from proreus.kube.reviews import REVIEW_SECONDS
from proreus.runtime import klog
from proreus.runtime.informer import Informer
from proreus.serving import certificates
from proreus.serving.authentication import FrontProxy, Trust

log = klog.logger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
PAUSE_SECONDS: Final = 2.0
"""Seconds between two reads of files. Kubernetes takes up to a minute to update mounted ones."""

CLIENT_CA: Final = "client-ca-file"
PROXY_CA: Final = "requestheader-client-ca-file"


_READ: Final = msgspec.structs.replace(
    requests.get(CONFIG_MAPS, NAME, NAMESPACE), timeout=REVIEW_SECONDS
)


class AuthoritiesError(Exception):
    """The error that the authorities cannot be read, which the flags do not allow."""


class Sources(msgspec.Struct, frozen=True):
    """The sources of the authorities: `--client-ca-file` and `--requestheader-*`.

    `lookup` also reads the ConfigMap for what has no file; `tolerate` goes on where the API server
    refuses to show it. `front_proxy` are the names and headers that go with `proxy_file`.
    """

    client_file: str = ""
    proxy_file: str = ""
    front_proxy: FrontProxy = FrontProxy()
    lookup: bool = True
    tolerate: bool = False

    @property
    def needs_lookup(self) -> bool:
        """Whether the ConfigMap must be read."""
        return self.lookup and not (self.client_file and self.proxy_file)


class Bundles(msgspec.Struct, frozen=True):
    """The trusted authorities as text: two bundles in PEM, and the front proxies' names."""

    clients: str = ""
    proxies: str = ""
    front_proxy: FrontProxy = FrontProxy()


def published(data: Mapping[str, str]) -> Bundles:
    """Decode the authorities that the ConfigMap holds.

    Raises:
        ValueError: A list in the ConfigMap cannot be decoded; the message names the key.
    """

    def listed(key: str) -> tuple[str, ...]:
        try:
            return msgspec.json.decode(
                data.get(f"requestheader-{key}") or "[]", type=tuple[str, ...]
            )
        except msgspec.DecodeError as exc:
            raise ValueError(f"requestheader-{key} is not a list of strings: {exc}") from None

    proxy = FrontProxy(
        names=listed("allowed-names"),
        username_headers=listed("username-headers"),
        uid_headers=listed("uid-headers"),
        group_headers=listed("group-headers"),
        extra_prefixes=listed("extra-headers-prefix"),
    )
    return Bundles(data.get(CLIENT_CA, ""), data.get(PROXY_CA, ""), proxy)


def combined(sources: Sources, files: Mapping[str, str], published_: Bundles) -> Bundles:
    """Combine the authorities: files where they are named, else the ConfigMap."""
    by_file = bool(sources.proxy_file)
    return Bundles(
        files.get(sources.client_file, "") if sources.client_file else published_.clients,
        files.get(sources.proxy_file, "") if by_file else published_.proxies,
        sources.front_proxy if by_file else published_.front_proxy,
    )


class ClientAuthorities:
    """The trusted authorities. A TLS server uses `pem` and `on_change`."""

    def __init__(self, sources: Sources, client: Client) -> None:
        """Start without any trusted authority, and read nothing yet."""
        self._sources = sources
        self._client = client
        self._files: dict[str, str] = {}
        self._published = Bundles()
        self._bundles = Bundles()
        self._trust = Trust()
        self._listeners: list[Callable[[], None]] = []
        self._problems: tuple[str, ...] = ()

    @property
    def trust(self) -> Trust:
        """The authorities, and the trusted front proxies."""
        return self._trust

    @property
    def pem(self) -> str:
        """All authorities, of users and front proxies, as one bundle; "" for none."""
        bundles = (self._bundles.clients, self._bundles.proxies)
        return "\n".join(bundle.strip() for bundle in bundles if bundle.strip())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever `pem` has changed; it must be quick."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Read files and ConfigMap once.

        An API server that cannot be reached now, or has no such ConfigMap, is no error: until it
        is there nobody is known by certificate.

        Raises:
            AuthoritiesError: A file cannot be used, or the ConfigMap may not be read.
        """
        problems = self._take_files()
        if self._sources.needs_lookup:
            problems += await self._look_up()
        problems += self._apply()
        if problems:
            raise AuthoritiesError("; ".join(problems))

    async def run(self) -> None:
        """Follow the files and the ConfigMap until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._sources.client_file or self._sources.proxy_file:
                group.create_task(self._follow_files())
            if self._sources.needs_lookup:
                name = f"metadata.name={NAME}"
                informer = Informer(
                    self._client, CONFIG_MAPS, namespace=NAMESPACE, field_selector=name
                )
                informer.subscribe(self._on_config_map)
                group.create_task(informer.run())

    async def _look_up(self) -> list[str]:
        """Read the ConfigMap; return the problems that are fatal."""
        place = f"{NAMESPACE}/{NAME}"
        try:
            found = await self._client.send(_READ, ConfigMap)
        except NotFound:
            klog.warning(
                log, "Client certificates are not accepted: there is no ConfigMap", config_map=place
            )
        except (Forbidden, Unauthorized) as exc:
            if not self._sources.tolerate:
                remedy = (
                    f"bind the role {NAME}-reader in {NAMESPACE}, or give "
                    "--authentication-skip-lookup or --authentication-tolerate-lookup-failure"
                )
                return [f"the ConfigMap {place} cannot be read: {exc}; {remedy}"]
            klog.warning(
                log, "Client certificates are not accepted", config_map=place, err=str(exc)
            )
        except KubeError as exc:
            klog.warning(
                log, "Client certificates are not accepted yet", config_map=place, err=str(exc)
            )
        else:
            return self._publish(found)
        return []

    def _on_config_map(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        # One that is deleted is about to be published again: what it said stays.
        if new is not None:
            self._log_problems(self._publish(new) + self._apply())

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            self._log_problems(self._take_files() + self._apply())

    def _publish(self, config_map: ConfigMap) -> list[str]:
        try:
            self._published = published(config_map.data)
        except ValueError as exc:
            return [f"ConfigMap {NAMESPACE}/{NAME}: {exc}"]
        return []

    def _take_files(self) -> list[str]:
        """Read the files again; keep the last content of one that cannot be read."""
        problems: list[str] = []
        for flag, path in (
            (CLIENT_CA, self._sources.client_file),
            (PROXY_CA, self._sources.proxy_file),
        ):
            try:
                text = Path(path).read_text(encoding="utf-8") if path else ""
            except (OSError, UnicodeDecodeError) as exc:
                problems.append(f"--{flag}: {path} cannot be read: {exc}")
                continue
            if path and not text.strip():
                problems.append(f"--{flag}: {path} is empty")
            elif path:
                self._files[path] = text
        return problems

    def _apply(self) -> list[str]:
        """Apply the combined authorities; an invalid bundle leaves all as it was."""
        bundles = combined(self._sources, self._files, self._published)
        if bundles == self._bundles:
            return []
        try:
            clients = _authorities(CLIENT_CA, self._sources.client_file, bundles.clients)
            proxies = _authorities(PROXY_CA, self._sources.proxy_file, bundles.proxies)
        except ValueError as exc:
            return [str(exc)]
        proxy = msgspec.structs.replace(bundles.front_proxy, cas=proxies)
        before = self.pem
        self._bundles, self._trust = bundles, Trust(clients, proxy)
        if self.pem != before:
            klog.info(
                log, "New client CAs are in use", users=len(clients), front_proxies=len(proxies)
            )
            for listener in self._listeners:
                listener()
        return []

    def _log_problems(self, problems: list[str]) -> None:
        """Log each new problem once."""
        if problems and tuple(problems) != self._problems:
            klog.error(
                log,
                "The new client CAs are not used; the old ones stay",
                err=None,
                problems=problems,
            )
        self._problems = tuple(problems)


def _authorities(name: str, path: str, pem: str) -> tuple[x509.Certificate, ...]:
    try:
        return certificates.authorities(pem)
    except ValueError as exc:
        place = f"--{name}: {path}" if path else f"ConfigMap {NAMESPACE}/{NAME}: {name}"
        raise ValueError(f"{place} {exc}") from exc
