"""Serve, as leader or standby: the secure port, admission webhooks, plain metrics.

The last two only where they are asked for. Webhooks come by themselves, since a provider brings
them: the rest is served before there is one. `listening` has the servers, and is imported only
where there is one: a manager that serves nothing starts without TLS and HTTP of servers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from proreus.app.options import Options
from proreus.app.status.source import Source
from proreus.app.webhooks import tls_settings as webhook_tls
from proreus.cloudprovider import CloudProvider
from proreus.kube.clientconfig import ClientConfig
from proreus.serving import tls_settings
from proreus.serving.health import Health


class ServersError(Exception):
    """The error that the process cannot serve as its flags say; `problems` holds the reasons."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        """Keep all problems."""
        super().__init__("\n".join(problems))
        self.problems = problems


def load(options: Options) -> None:
    """Import what these options need for serving, before an event loop runs that it would block."""
    if options.webhooks or _listens(options):
        import_module("proreus.app.listening")


def _listens(options: Options) -> bool:
    return bool(options.secure_port) or options.metrics_bind_address != "0"


@asynccontextmanager
async def servers(
    options: Options, health: Health, config: ClientConfig, state: Source
) -> AsyncIterator[None]:
    """Serve while the body runs; bind only what the flags ask for.

    `config` is the way to the API server, which is asked about those who ask us; `state` is what
    the status page shows.

    Raises:
        ServersError: An address is taken, or a certificate or the clients' authorities cannot be
            read.
    """
    if not _listens(options):
        yield
        return
    from proreus.app import listening  # noqa: PLC0415 - see `load`

    async with listening.servers(options, health, config, state):
        yield


@asynccontextmanager
async def admission(
    options: Options, provider: CloudProvider, config: ClientConfig
) -> AsyncIterator[None]:
    """Serve the webhooks of `provider` that `--webhooks` enables, while the body runs.

    Raises:
        ServersError: An address is taken, a certificate cannot be read, or there is no such
            webhook.
    """
    if not options.webhooks:
        yield
        return
    from proreus.app import listening  # noqa: PLC0415 - see `load`

    async with listening.admission(options, provider, config):
        yield


def problems(options: Options) -> list[str]:
    """Report wrong flags of the servers; each problem names its flag."""
    found = tls_settings.problems(settings(options)) if options.secure_port else []
    if options.webhooks and options.webhook_secure_port:
        found += tls_settings.problems(webhook_tls(options))
    return found


def settings(options: Options) -> tls_settings.Settings:
    """Return the TLS settings of the secure port."""
    return tls_settings.Settings(
        cert_dir=options.cert_dir,
        cert_file=options.tls_cert_file,
        private_key_file=options.tls_private_key_file,
        sni=options.tls_sni_cert_key,
        min_version=options.tls_min_version,
        cipher_suites=options.tls_cipher_suites,
        curve_preferences=options.tls_curve_preferences,
    )
