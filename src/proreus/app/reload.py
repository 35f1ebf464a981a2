"""Follow the cloud-config and the files that it names, and take over changes at run time.

The config is read again when its file, its Secret or a file in `CloudProvider.watched_files` has
changed, and has been the same in two readings: a program may be writing a file in place. A wrong
config is reported (log, event, metric), and the working provider stays in use; so it does while the
config is empty, as a file is when a program begins to write it. A right one makes a new provider,
which is started beside the old one; if the cloud refuses it, it is tried again with backoff. Only
once it has started are the controllers switched to it.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from proreus.app.merging import source_of, with_file
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ConfigError,
    config_text,
    with_config,
)
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.errors import KubeError, NotFound
from proreus.kube.objects import Secret
from proreus.kube.requests import LEASES, SECRETS
from proreus.kube.watch import Check, unchecked
from proreus.runtime import by_cloud, klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.events import ObjectReference
from proreus.runtime.informer import Informer

log = klog.logger(__name__)

PAUSE_SECONDS: Final = 2.0
"""Seconds between two reads of files. Kubernetes takes up to a minute to update mounted ones."""

RETRY: Final = Backoff(first=1.0, cap=60.0, jitter=0.5)
"""The pause between two starts of a provider that the cloud refuses."""

CONFIG: Final = ""
Digests = dict[str, str]
"""The digest of each watched file by its path, of the config by CONFIG; changes show here."""


class Origin(Protocol):
    """A source of the cloud-config, used within `async with`."""

    name: str
    """The origin's name for messages; its suffix may tell the format."""

    async def __aenter__(self) -> Self:
        """Begin to follow the config."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop following the config."""

    def read(self) -> str:
        """Return the text of the cloud-config as it is now.

        Raises:
            ConfigError: The cloud-config is missing.
        """

    async def changed(self, seconds: float) -> None:
        """Wait until the text may have changed, at most `seconds`."""


class FileOrigin:
    """The file of `--cloud-config` as source, or nothing ("")."""

    def __init__(self, path: str) -> None:
        """Remember the path; read nothing yet."""
        self.name = path

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: no file is open."""

    def read(self) -> str:
        """Return the text of the file."""
        return config_text(self.name)

    async def changed(self, seconds: float) -> None:
        """Wait for `seconds`; reading the small file shows whether it changed.

        The content is compared, not the time of change: Kubernetes swaps a link to a folder.
        """
        await asyncio.sleep(seconds)


class SecretOrigin:
    """The Secret of `--cloud-config-secret` as source, read by a watch on that one object."""

    def __init__(self, client: Client, place: str, check: Check = unchecked) -> None:
        """Follow a Secret, as an informer with this `check` does; `place` is namespace/name/key."""
        self.name = place
        self._key, _, self._entry = place.rpartition("/")
        namespace, _, name = self._key.partition("/")
        self._secret = Informer(
            client,
            SECRETS,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            check=check,
        )
        self._secret.subscribe(self._on_secret)
        self._event = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._secret.run(), name="cloud-config-secret")
        await self._secret.wait_synced()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    def read(self) -> str:
        """Return the text in the Secret."""
        return secret_text(self._secret.get(self._key), self.name)

    async def changed(self, seconds: float) -> None:
        """Wait until the watch has seen a change."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()

    def _on_secret(self, old: Secret | None, new: Secret | None) -> None:  # noqa: ARG002
        self._event.set()


class DerivedOrigin:
    """A source whose text is made of another's, such as one section of it."""

    def __init__(self, name: str, base: Origin, derive: Callable[[str], str]) -> None:
        """Follow `base`; `derive` makes the text, and raises ConfigError where it cannot."""
        self.name = name
        self._base = base
        self._derive = derive

    async def __aenter__(self) -> Self:
        await self._base.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._base.__aexit__(kind, error, trace)

    def read(self) -> str:
        """Return the cloud-config that is derived from the text of its file as it is now.

        Raises:
            ConfigError: The file cannot be read, or no cloud-config can be derived from it.
        """
        return self._derive(self._base.read())

    async def changed(self, seconds: float) -> None:
        """Wait until the base may have changed, at most `seconds`."""
        await self._base.changed(seconds)


def origin_of(
    options: Options, provider: CloudProvider, client: Client, check: Check = unchecked
) -> tuple[Origin | None, ObjectReference]:
    """Return where the cloud-config is (None: nothing to follow), and the object of its events."""
    about = ObjectReference(
        LEASES.api_version,
        LEASES.kind,
        options.leader_elect_resource_name,
        options.leader_elect_resource_namespace,
    )
    if options.cloud_config_secret:
        namespace, name, _ = options.cloud_config_secret.split("/")
        about = ObjectReference(SECRETS.api_version, SECRETS.kind, name, namespace)
        secret = SecretOrigin(client, options.cloud_config_secret, check)
        merged = DerivedOrigin(source_of(options), secret, lambda text: with_file(options, text))
        return (merged if options.merge_cloud_config else secret), about
    if options.cloud_config or provider.watched_files:
        return FileOrigin(options.cloud_config), about
    return None, about


def secret_text(secret: Secret | None, place: str) -> str:
    """Return the cloud-config in a Secret; `place` is namespace/name/key.

    Raises:
        ConfigError: The Secret or its key does not exist, or the value is no text.
    """
    path, _, entry = place.rpartition("/")
    if secret is None:
        raise ConfigError((f"--cloud-config-secret: there is no Secret {path}; create it",))
    if entry not in secret.data:
        has = ", ".join(sorted(secret.data)) or "none"
        problem = f"--cloud-config-secret: the Secret {path} has no key {entry!r}; it has {has}"
        raise ConfigError((problem,))
    try:
        return base64.b64decode(secret.data[entry], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ConfigError((f"--cloud-config-secret: {place} is not UTF-8",)) from None


async def provider_from_secret(
    make: Callable[[str], CloudProvider], place: str, cluster: ClientConfig
) -> CloudProvider:
    """Wait for a valid cloud-config in a Secret, and make its provider.

    Args:
        make: Makes a provider from the text of a config; raises ConfigError if the text is wrong.
        place: The place of the config: namespace/name/key.
        cluster: The config of the API client.
    """
    namespace, secret_name, _ = place.split("/")
    failures = 0
    async with Client(cluster) as client:
        while True:
            try:
                text = secret_text(await _get(client, namespace, secret_name), place)
                return make(text)
            except ConfigError as exc:
                problems: Sequence[str] = exc.problems
            except KubeError as exc:
                problems = (f"--cloud-config-secret: {place} cannot be read: {exc}",)
            delay = RETRY.delay(failures)
            failures += 1
            for problem in problems:
                klog.error(
                    log, "There is no cloud-config yet", problem=problem, retry_seconds=round(delay)
                )
            await asyncio.sleep(delay)


async def _get(client: Client, namespace: str, name: str) -> Secret | None:
    try:
        return await client.get(SECRETS, name, namespace)
    except NotFound:
        return None


class Reloader:
    """A task that makes a new provider whenever its config or files have changed.

    Attributes:
        looked: Set once the config has been read by `run`, and taken over if it is another one.
    """

    def __init__(
        self,
        origin: Origin,
        current: CloudProvider,
        replace: Callable[[CloudProvider], Awaitable[None]],
        record_event: Callable[[str, str, str], None],
        *,
        cloud: str = "",
    ) -> None:
        """Follow `origin` for as long as `run` runs.

        Args:
            origin: The source of the cloud-config.
            current: The provider in use.
            replace: Starts another provider and switches to it, or raises CloudError or ConfigError
                and leaves all as it was.
            record_event: Records an event: its type, reason and message.
            cloud: The cloud's name, where there are several.
        """
        self.looked = asyncio.Event()
        self._cloud = cloud
        self._origin = origin
        self._current = current
        self._replace = replace
        self._record_event = record_event
        self._watched = current.watched_files
        # What the provider in use was made from; None: not known yet.
        self._used: Digests | None = None
        self._digests_seen: Digests = {}
        self._unsettled: Digests = {}
        self._due: float | None = None
        self._failures = 0

    async def run(self) -> None:
        """Follow the config until cancelled."""
        loop = asyncio.get_running_loop()
        async with self._origin:
            while True:
                digests = self._digests()
                is_new = digests != self._digests_seen
                if is_new and digests != self._unsettled and self._used is not None:
                    self._unsettled = digests
                elif is_new or (self._due is not None and loop.time() >= self._due):
                    if is_new:
                        self._failures = 0
                    await self._follow(digests)
                self.looked.set()
                await self._origin.changed(PAUSE_SECONDS)

    def _digests(self) -> Digests:
        try:
            config = _digest(self._origin.read().encode())
        except ConfigError as exc:
            config = str(exc)
        return {CONFIG: config} | {path: _file_digest(path) for path in self._watched}

    async def _follow(self, digests: Digests) -> None:
        """Take over a changed config, if it is valid and the cloud accepts it."""
        self._digests_seen, self._due = digests, None
        if self._used is not None and self._used.items() <= digests.items():
            self._in_use(self._current, self._used)  # what was wrong has been taken back
            klog.info(log, "The cloud-config is back to the one in use", source=self._origin.name)
            return
        try:
            text = self._origin.read()
            self._check_emptied(text)
            made = with_config(self._current.name, text, source=self._origin.name)
        except ConfigError as exc:
            self._failed("invalid", "CloudConfigInvalid", exc.problems)
            return
        self._watched = tuple({*self._current.watched_files, *made.watched_files})
        # Of what was read: whatever has changed since counts as a change, also during the start.
        found = {**self._digests(), **digests, CONFIG: _digest(text.encode())}
        digests = self._digests_seen = {key: found[key] for key in (CONFIG, *self._watched)}
        if self._used is None and made.config == self._current.config:
            self._in_use(self._current, digests)
            return
        try:
            await self._replace(made)
        except (CloudError, ConfigError) as exc:
            self._due = asyncio.get_running_loop().time() + RETRY.delay(self._failures)
            self._failures += 1
            problems = exc.problems if isinstance(exc, ConfigError) else (str(exc),)
            self._failed("failed", "CloudConfigRefused", problems)
            return
        self._in_use(made, digests)
        metrics.CLOUD_CONFIG_RELOADS.labels("success").inc()
        klog.info(log, "The new cloud-config is in use", source=self._origin.name)
        self._record_event("Normal", "CloudConfigReloaded", "The new cloud-config is in use")

    def _check_emptied(self, text: str) -> None:
        """Refuse a cloud-config that has become empty.

        Raises:
            ConfigError: The text is empty, and that of the provider in use is not.
        """
        if self._used is None or text.strip() or self._used[CONFIG] == _digest(b""):
            return
        where = self._origin.name
        problem = f"{where}: is empty now: write it, or restart the manager to go on without one"
        raise ConfigError((problem,))

    def _in_use(self, provider: CloudProvider, digests: Digests) -> None:
        self._current, self._watched, self._failures = provider, provider.watched_files, 0
        self._used = self._digests_seen = {key: digests[key] for key in (CONFIG, *self._watched)}
        by_cloud.CLOUD_CONFIG_CURRENT.set(self._cloud, 1)

    def _failed(self, result: str, reason: str, problems: Sequence[str]) -> None:
        metrics.CLOUD_CONFIG_RELOADS.labels(result).inc()
        by_cloud.CLOUD_CONFIG_CURRENT.set(self._cloud, 0)
        for problem in problems:
            klog.error(log, "The new cloud-config is not used, the old one stays", problem=problem)
        self._record_event(
            "Warning", reason, f"The old cloud-config stays in use: {'; '.join(problems)}"
        )


def _file_digest(path: str) -> str:
    try:
        return _digest(Path(path).read_bytes())
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
