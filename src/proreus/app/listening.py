"""Run the servers, in a module apart because TLS, HTTP and certificates are slow to import."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from proreus.app.access import delegated_access
from proreus.app.configz import configz
from proreus.app.flags import FlagError
from proreus.app.options import Options
from proreus.app.servers import ServersError, settings
from proreus.app.status import routes
from proreus.app.status.source import Source
from proreus.app.webhooks import enabled, ready, tls_settings
from proreus.cloudprovider import CloudProvider
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError
from proreus.serving import endpoints, webhooks
from proreus.serving.authorities import AuthoritiesError, ClientAuthorities
from proreus.serving.health import Health
from proreus.serving.servers import CannotListen, serve
from proreus.serving.tls import ServerTLS, TLSError


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
    async with AsyncExitStack() as stack:
        with _as_servers_error():
            await _start(stack, options, health, config, state)
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
    async with AsyncExitStack() as stack:
        with _as_servers_error():
            await stack.enter_async_context(webhook_server(options, provider, config))
        yield


@contextmanager
def _as_servers_error() -> Iterator[None]:
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


@asynccontextmanager
async def webhook_server(
    options: Options, provider: CloudProvider, config: ClientConfig
) -> AsyncIterator[int]:
    """Serve the webhooks while the body runs; yields the port, 0 without webhooks.

    Clients are not authenticated, as in the Go framework: what a webhook answers changes nothing by
    itself. `config` is how our own webhooks reach the API server, from which they read.

    Raises:
        FlagError: `--webhooks` names a webhook that does not exist.
        TLSError: The certificate cannot be used.
        CannotListen: The address is taken.
    """
    chosen, problems = enabled(options, provider)
    if problems:
        raise FlagError(list(problems))
    if not chosen or not options.webhook_secure_port:
        yield 0
        return
    async with (
        ready(chosen, options, config) as handlers,
        serve(
            webhooks.app(handlers),
            options.webhook_bind_address,
            options.webhook_secure_port,
            flag="--webhook-secure-port",
            tls=ServerTLS(tls_settings(options)),
        ) as port,
    ):
        yield port


def _trust(own: ServerTLS, authorities: ClientAuthorities) -> None:
    """Ask clients for certificates of the current authorities, and follow their changes."""

    def take() -> None:
        own.set_client_cas(authorities.pem)

    take()
    authorities.on_change(take)
