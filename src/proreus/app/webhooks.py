"""Choose the admission webhooks that `--webhooks` enables: ours and the provider's."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider
from proreus.kube.admission import Webhook
from proreus.serving.tls_settings import Settings

WEBHOOKS: Final[Mapping[str, Webhook]] = MappingProxyType({})
"""Our own webhooks for every cloud, by name; a provider's of the same name replaces one."""


def enabled(
    options: Options, provider: CloudProvider
) -> tuple[Mapping[str, Webhook], tuple[str, ...]]:
    """Return the webhooks to serve, by name, and the problems with `--webhooks`."""
    return select(options.webhooks, {**WEBHOOKS, **provider.webhooks})


def select(
    wanted: Sequence[str], known: Mapping[str, Webhook]
) -> tuple[Mapping[str, Webhook], tuple[str, ...]]:
    """Return the webhooks that `--webhooks` enables, by name, and the problems with it.

    "*" is all, "name" that one, "-name" not that one; what is named wins over "*".
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


def _hint(item: str, known: Mapping[str, Webhook]) -> str:
    if not known:
        return "; there are none"
    close = difflib.get_close_matches(item.removeprefix("-"), known, n=1)
    return f"; there are {', '.join(sorted(known))}" + (
        f": did you mean {close[0]}?" if close else ""
    )
