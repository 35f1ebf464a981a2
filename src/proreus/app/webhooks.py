"""Serves the admission webhooks that `--webhooks` enables: ours and the provider's."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

from proreus.app.flags import FlagError
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider
from proreus.kube.admission import Webhook
from proreus.runtime import serving, webhooks
from proreus.runtime.tls import ServerTLS
from proreus.runtime.tls_settings import Settings

WEBHOOKS: Final[Mapping[str, Webhook]] = MappingProxyType({})
"""Ours, for every cloud, by name; a provider's of the same name takes its place."""


def enabled(
    options: Options, provider: CloudProvider
) -> tuple[Mapping[str, Webhook], tuple[str, ...]]:
    """The webhooks that are served, by name, and what is wrong with `--webhooks`."""
    return webhooks.select(options.webhooks, {**WEBHOOKS, **provider.webhooks})


@asynccontextmanager
async def webhook_server(options: Options, provider: CloudProvider) -> AsyncIterator[int]:
    """Serve the webhooks while the body runs; the value is the port, 0 if there is none to serve.

    Any client is let in, as by Go's host: what a webhook answers changes nothing by itself.

    Raises:
        FlagError: `--webhooks` names one that is not there.
        TLSError: The certificate cannot be used.
        CannotListen: The address is taken.
    """
    chosen, problems = enabled(options, provider)
    if problems:
        raise FlagError(list(problems))
    if not chosen or not options.webhook_secure_port:
        yield 0
        return
    async with serving.serve(
        webhooks.app(chosen),
        options.webhook_bind_address,
        options.webhook_secure_port,
        flag="--webhook-secure-port",
        tls=ServerTLS(tls_settings(options)),
    ) as port:
        yield port


def tls_settings(options: Options) -> Settings:
    """The webhooks' own certificates and limits of TLS."""
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
