"""The flags of serving and access reach what serves and lets in."""

from pathlib import Path

import pytest

from proreus.app import servers, webhooks
from proreus.app.access import delegated_access, sources
from proreus.app.options import Options
from proreus.kube.config import ClientConfig
from proreus.kube.errors import ConfigError
from proreus.serving.authentication import FrontProxy
from proreus.serving.authorities import Sources
from proreus.serving.health import Health

TLS = {
    "cert_dir": "/certs", "tls_cert_file": "c", "tls_private_key_file": "k",
    "tls_sni_cert_key": (("a", "b", ("x",)),), "tls_min_version": "VersionTLS13",
    "tls_cipher_suites": ("S",), "tls_curve_preferences": (29,),
}  # fmt: skip


def test_the_authorities_and_headers_of_clients_are_those_of_the_flags() -> None:
    assert sources(
        Options(
            client_ca_file="ca", requestheader_client_ca_file="proxies",
            requestheader_allowed_names=("front",), requestheader_username_headers=("u",),
            requestheader_uid_headers=("i",), requestheader_group_headers=("g",),
            requestheader_extra_headers_prefix=("e-",), authentication_skip_lookup=True,
            authentication_tolerate_lookup_failure=True,
        )
    ) == Sources(
        client_file="ca", proxy_file="proxies",
        front_proxy=FrontProxy(
            names=("front",), username_headers=("u",), uid_headers=("i",), group_headers=("g",),
            extra_prefixes=("e-",),
        ),
        lookup=False, tolerate=True,
    )  # fmt: skip


@pytest.mark.parametrize("flag", ["authentication_kubeconfig", "authorization_kubeconfig"])
async def test_a_kubeconfig_of_its_own_is_used_for_reviews(flag: str, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    options = Options(authentication_skip_lookup=True, **{flag: str(missing)})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=str(missing)):
        async with delegated_access(options, ClientConfig(server="http://127.0.0.1:1"), Health()):
            pass


def test_both_servers_have_the_certificates_and_limits_of_their_own_flags() -> None:
    own = servers.settings(Options(**TLS))  # type: ignore[arg-type]
    hooks = webhooks.tls_settings(Options(**{f"webhook_{name}": it for name, it in TLS.items()}))  # type: ignore[arg-type]
    for made, prefix in ((own, "tls"), (hooks, "webhook-tls")):
        assert made.prefix == prefix
        assert (made.cert_dir, made.cert_file, made.private_key_file) == ("/certs", "c", "k")
        assert made.sni == (("a", "b", ("x",)),)
        assert (made.min_version, made.cipher_suites) == ("VersionTLS13", ("S",))
        assert made.curve_preferences == (29,)
    assert servers.settings(Options()).cert_file == ""


def test_what_is_wrong_with_the_tls_of_both_servers_is_reported_together() -> None:
    options = Options(
        tls_cipher_suites=("RC4",), webhook_tls_curve_preferences=(1,), webhooks=("*",)
    )
    assert [problem.partition(":")[0] for problem in servers.problems(options)] == [
        "--tls-cipher-suites",
        "--webhook-tls-curve-preferences",
    ]
