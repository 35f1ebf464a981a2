"""Choose the admission webhooks that `--webhooks` enables: ours and the provider's."""

import difflib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec

from proreus.app import readonly
from proreus.app.caches import config_maps
from proreus.app.clouds.config import named
from proreus.app.clouds.several import flags_of, members_of
from proreus.app.cluster_identity import read_identity
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider, Volumes
from proreus.controllers.persistent_volume_claim_resize import webhook as resize
from proreus.controllers.persistent_volume_label import webhook as label
from proreus.controllers.persistent_volume_label.questions import (
    QuestionsOfAll,
    VolumeQuestions,
)
from proreus.controllers.table import Rule
from proreus.kube.admission import AdmissionRequest, AdmissionResponse, Webhook
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.serving.tls_settings import Settings

USER_AGENT: Final = "proreus/webhooks"

Handler = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]


class Means(msgspec.Struct, frozen=True):
    """The clients that our own webhooks need: one that reads the API server, one for volumes."""

    client: Client
    volumes: QuestionsOfAll


class OwnWebhook(msgspec.Struct, frozen=True):
    """A webhook of our own, for every cloud: path, handler, and what it asks of the API server."""

    path: str
    handler: Callable[[Means], Handler]
    rules: tuple[Rule, ...] = ()


WEBHOOKS: Final[Mapping[str, OwnWebhook]] = MappingProxyType(
    {
        "persistentvolume-label": OwnWebhook(
            label.PATH, lambda means: label.admission(means.volumes.ask)
        ),
        "persistentvolumeclaim-resize": OwnWebhook(
            resize.PATH,
            lambda means: resize.admission(means.client),
            (Rule("storage.k8s.io", "storageclasses", ("get",)),),
        ),
    }
)
"""Our own webhooks for every cloud, by name; a provider's of the same name replaces one."""


class _HasPath(Protocol):
    @property
    def path(self) -> str:
        """The path of the URL."""


H = TypeVar("H", bound=_HasPath)


def enabled(
    options: Options, provider: CloudProvider
) -> tuple[Mapping[str, OwnWebhook | Webhook], tuple[str, ...]]:
    """Return the webhooks to serve, by name, and the problems with `--webhooks`."""
    return select(options.webhooks, {**WEBHOOKS, **provider.webhooks})


def rules(options: Options) -> tuple[Rule, ...]:
    """Return the rights that our own webhooks need, those that `--webhooks` enables."""
    chosen, _ = select(options.webhooks, WEBHOOKS)
    return tuple(rule for webhook in chosen.values() for rule in webhook.rules)


@asynccontextmanager
async def ready(
    chosen: Mapping[str, OwnWebhook | Webhook], options: Options, config: ClientConfig
) -> AsyncIterator[Mapping[str, Webhook]]:
    """Give our own webhooks their clients while the body runs; yields every webhook to serve."""
    async with readonly.client(config, USER_AGENT) as client:
        clouds = named(options.cloud_provider)
        questions = QuestionsOfAll(
            [VolumeQuestions(partial(opened, options, client, one.name)) for one in clouds]
        )
        means = Means(client, questions)
        try:
            yield {
                name: Webhook(one.path, one.handler(means)) if isinstance(one, OwnWebhook) else one
                for name, one in chosen.items()
            }
        finally:
            await questions.close()


@asynccontextmanager
async def opened(options: Options, client: Client, name: str) -> AsyncIterator[Volumes | None]:
    """Open a provider that can only read while the body runs; yields its capability `Volumes`.

    The provider is that of the cloud `name`, "" for the only one. It gets no nodes and no Services:
    where a volume is does not depend on them.

    Raises:
        CloudError: The provider cannot be started.
        KubeError: The API server cannot be asked.
    """
    provider = members_of(await readonly.configured(options, client))[name]
    cluster = await read_identity(client, options.cluster_name)
    listers = {**readonly.listers((), (), ()), **await config_maps(client, provider.needs)}
    given = flags_of(provider, options.provider_flags)
    async with readonly.started(provider, cluster, listers, flags=given) as started:
        yield started.volumes


def select(
    wanted: Sequence[str], known: Mapping[str, H]
) -> tuple[Mapping[str, H], tuple[str, ...]]:
    """Return the webhooks that `--webhooks` enables, by name, and the problems with it.

    "*" means all, "name" that webhook, "-name" not that webhook; a name counts more than "*".
    """
    problems = [
        f"--webhooks: unknown webhook {item.removeprefix('-')!r}{_hint(item, known)}"
        for item in wanted
        if item != "*" and item.removeprefix("-") not in known
    ]
    chosen = {
        name: webhook
        for name, webhook in known.items()
        if name in wanted or ("*" in wanted and f"-{name}" not in wanted)
    }
    for path, count in Counter(webhook.path for webhook in chosen.values()).items():
        if count > 1:
            names = ", ".join(name for name in chosen if chosen[name].path == path)
            problems.append(f"--webhooks: {names} have the same path {path}: enable one of them")
    return chosen, tuple(problems)


def tls_settings(options: Options) -> Settings:
    """Return the webhooks' own certificates and TLS limits."""
    return Settings(
        prefix="webhook-tls",
        pair_name="cloud-controller-manager-webhook",
        cert_dir=options.webhook_cert_dir,
        cert_file=options.webhook_tls_cert_file,
        private_key_file=options.webhook_tls_private_key_file,
        sni=options.webhook_tls_sni_cert_key,
        min_version=options.webhook_tls_min_version,
        cipher_suites=options.webhook_tls_cipher_suites,
        curve_preferences=options.webhook_tls_curve_preferences,
    )


def _hint(item: str, known: Mapping[str, H]) -> str:
    close = difflib.get_close_matches(item.removeprefix("-"), known, n=1)
    return f"; there are {', '.join(sorted(known))}" + (
        f": did you mean {close[0]}?" if close else ""
    )
