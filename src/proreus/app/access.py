"""Set up delegated authentication and authorization of our servers from the flags."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec
from aiohttp.typedefs import Middleware

from proreus.app.options import Options
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.runtime import metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.tasks import supervise
from proreus.serving.access import access
from proreus.serving.authentication import Authenticator, FrontProxy
from proreus.serving.authorities import ClientAuthorities, Sources
from proreus.serving.authorization import Authorizer
from proreus.serving.health import Health

RESTART: Final = Backoff(first=1.0, cap=60.0)
"""The pause before a crashed watch of the authorities starts again."""

USER_AGENT: Final = "proreus/delegated-access"


class Access(msgspec.Struct, frozen=True):
    """The middleware for a server's requests, and the client CAs that it needs."""

    middleware: Middleware
    authorities: ClientAuthorities


@asynccontextmanager
async def delegated_access(
    options: Options, own: ClientConfig, health: Health
) -> AsyncIterator[Access]:
    """Authenticate and authorize requests by the API server while the body runs.

    `own` is the client that reaches the API server where no flag says otherwise. Afterwards health
    has a check `client-authorities`.

    Raises:
        ConfigError: One of the two kubeconfig files cannot be used.
        AuthoritiesError: The clients' CAs cannot be had.
    """
    async with AsyncExitStack() as stack:

        async def client(kubeconfig: str) -> Client:
            where = config.load(kubeconfig) if kubeconfig else own
            made = Client(where, observer=metrics.observe_request, user_agent=USER_AGENT)
            return await stack.enter_async_context(made)

        authenticating = await client(options.authentication_kubeconfig)
        authorities = ClientAuthorities(sources(options), authenticating)
        await authorities.load()
        authenticator = Authenticator(
            authorities, authenticating, token_ttl=options.authentication_token_webhook_cache_ttl
        )
        stack.push_async_callback(authenticator.close)
        authorizer = Authorizer(
            await client(options.authorization_kubeconfig),
            always_allow_paths=options.authorization_always_allow_paths,
            authorized_ttl=options.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl=options.authorization_webhook_cache_unauthorized_ttl,
        )
        stack.push_async_callback(authorizer.close)
        on_crash = health.flag("client-authorities")
        follow = supervise(
            "client-authorities", authorities.run, backoff=RESTART, on_crash=on_crash
        )
        following = asyncio.create_task(follow)
        try:
            yield Access(access(authenticator, authorizer), authorities)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def sources(options: Options) -> Sources:
    """Return where to read the certificate authorities and the front proxy, by the flags."""
    return Sources(
        client_file=options.client_ca_file,
        proxy_file=options.requestheader_client_ca_file,
        front_proxy=FrontProxy(
            names=options.requestheader_allowed_names,
            username_headers=options.requestheader_username_headers,
            uid_headers=options.requestheader_uid_headers,
            group_headers=options.requestheader_group_headers,
            extra_prefixes=options.requestheader_extra_headers_prefix,
        ),
        lookup=not options.authentication_skip_lookup,
        tolerate=options.authentication_tolerate_lookup_failure,
    )
