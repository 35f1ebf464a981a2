"""What the process serves, leader or standby: the secure port, admission webhooks, plain metrics.

The last two only where they are asked for. Webhooks come by themselves, since a provider brings
them: the rest is served before there is one.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from proreus.app.access import delegated_access
from proreus.app.configz import configz
from proreus.app.flags import FlagError
from proreus.app.options import Options
from proreus.app.status import routes
from proreus.app.status.source import Source
from proreus.app.webhooks import tls_settings as webhook_tls
from proreus.app.webhooks import webhook_server
from proreus.cloudprovider import CloudProvider
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError
from proreus.runtime import endpoints, tls_settings
from proreus.runtime.authorities import AuthoritiesError, ClientAuthorities
from proreus.runtime.health import Health
from proreus.runtime.serving import CannotListen, serve
from proreus.runtime.tls import ServerTLS, TLSError


class ServersError(Exception):
    """The process cannot serve as its flags say; `problems` holds every reason."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        """Keep all problems."""
        super().__init__("\n".join(problems))
        self.problems = problems


@asynccontextmanager
async def servers(
    options: Options, health: Health, config: ClientConfig, state: Source
) -> AsyncIterator[None]:
    """Serve while the body runs; nothing is bound that the flags do not ask for.

    `config` is the way to the API server, which is asked about those who ask us; `state` is what
    the status page shows.

    Raises:
        ServersError: An address, a certificate or the clients' authorities cannot be had.
    """
    async with AsyncExitStack() as stack:
        with _told():
            await _start(stack, options, health, config, state)
        yield


@asynccontextmanager
async def admission(options: Options, provider: CloudProvider) -> AsyncIterator[None]:
    """Serve the webhooks that `provider` brings and `--webhooks` enables, while the body runs.

    Raises:
        ServersError: An address or a certificate cannot be had, or there is no such webhook.
    """
    async with AsyncExitStack() as stack:
        with _told():
            await stack.enter_async_context(webhook_server(options, provider))
        yield


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (TLSError, ConfigError, FlagError) as exc:
        raise ServersError(tuple(exc.problems)) from exc
    except (CannotListen, AuthoritiesError) as exc:
        raise ServersError((str(exc),)) from exc


async def _start(
    stack: AsyncExitStack,
    options: Options,
    health: Health,
    config: ClientConfig,
    state: Source,
) -> None:
    host, _, port = options.metrics_bind_address.rpartition(":")
    await stack.enter_async_context(
        serve(
            endpoints.open_application(health),
            host.strip("[]") or "127.0.0.1",
            int(port),
            flag="--metrics-bind-address",
        )
    )
    if not options.secure_port:
        return
    own = ServerTLS(settings(options))
    access = await stack.enter_async_context(delegated_access(options, config, health))
    _trust(own, access.authorities)
    app = endpoints.application(
        health,
        lambda: configz(options),
        profiling=options.profiling,
        middlewares=(access.middleware,),
    )
    if options.status_page:
        routes.add(app, state)
    await stack.enter_async_context(
        serve(
            app,
            options.bind_address,
            options.secure_port,
            flag="--secure-port",
            tls=own,
            share_port=options.permit_port_sharing,
        )
    )


def problems(options: Options) -> list[str]:
    """What is wrong with the flags of serving; each problem names its flag."""
    found = tls_settings.problems(settings(options)) if options.secure_port else []
    if options.webhooks and options.webhook_secure_port:
        found += tls_settings.problems(webhook_tls(options))
    return found


def settings(options: Options) -> tls_settings.Settings:
    """The TLS of the secure port."""
    return tls_settings.Settings(
        cert_dir=options.cert_dir,
        cert_file=options.tls_cert_file,
        private_key_file=options.tls_private_key_file,
        sni=options.tls_sni_cert_key,
        min_version=options.tls_min_version,
        cipher_suites=options.tls_cipher_suites,
        curve_preferences=options.tls_curve_preferences,
    )


def _trust(own: ServerTLS, authorities: ClientAuthorities) -> None:
    """Ask clients for certificates of these authorities, now and whenever they change."""

    def take() -> None:
        own.set_client_cas(authorities.pem)

    take()
    authorities.on_change(take)
