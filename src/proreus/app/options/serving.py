"""Define the flags of the servers: TLS, access, admission webhooks."""

from typing import Annotated

from proreus.app.flag_values import (
    address,
    at_least,
    boolean,
    certificate,
    duration,
    integer,
    integers,
    names,
    port,
)
from proreus.app.flags import Flag
from proreus.app.options.cloud import CloudOptions

SERVING = "secure serving"
AUTHENTICATION = "authentication"
AUTHORIZATION = "authorization"
WEBHOOK = "webhook"

TLS_VERSIONS = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")

NamedCertificate = tuple[str, str, tuple[str, ...]]
"""A certificate's file, its key's file and its domains; without domains, those it names."""


def _tls_version(value: str) -> str:
    return "" if value in {"", *TLS_VERSIONS} else f"must be one of {', '.join(TLS_VERSIONS)}"


class ServingOptions(CloudOptions, frozen=True, kw_only=True):
    """The flags of the servers."""

    bind_address: Annotated[
        str, Flag(SERVING, "IP address of --secure-port; empty is all of them.", address)
    ] = "0.0.0.0"  # noqa: S104 - Go's default: probes and Prometheus come from outside of the pod
    secure_port: Annotated[
        int, Flag(SERVING, "Port of health, metrics and debugging by HTTPS; 0 is off.", port)
    ] = 10258
    cert_dir: Annotated[
        str,
        Flag(SERVING, "Folder of the certificate that is made if --tls-cert-file is not given."),
    ] = ""
    tls_cert_file: Annotated[str, Flag(SERVING, "File with the certificate and its chain.")] = ""
    tls_private_key_file: Annotated[str, Flag(SERVING, "File with the certificate's key.")] = ""
    tls_cipher_suites: Annotated[
        tuple[str, ...],
        Flag(SERVING, "Cipher suites of TLS 1.2 and below, by Go's names.", names),
    ] = ()
    tls_min_version: Annotated[
        str,
        Flag(SERVING, "Lowest version of TLS: VersionTLS12 or VersionTLS13.", check=_tls_version),
    ] = ""
    tls_curve_preferences: Annotated[
        tuple[int, ...],
        Flag(
            SERVING, "Curve by its IANA number, such as 29 (X25519); several: any curve.", integers
        ),
    ] = ()
    tls_sni_cert_key: Annotated[
        tuple[NamedCertificate, ...],
        Flag(
            SERVING,
            "Another certificate for names: certificate,key[:domain,...]; repeatable.",
            certificate,
            repeated=True,
        ),
    ] = ()
    http2_max_streams_per_connection: Annotated[
        int, Flag(SERVING, "Has no effect: only HTTP/1.1 is served.", integer, at_least(0))
    ] = 0
    disable_http2_serving: Annotated[
        bool, Flag(SERVING, "Has no effect: only HTTP/1.1 is served.", boolean)
    ] = False
    permit_port_sharing: Annotated[
        bool, Flag(SERVING, "Bind with SO_REUSEPORT: several processes, one port.", boolean)
    ] = False
    permit_address_sharing: Annotated[
        bool, Flag(SERVING, "Has no effect: SO_REUSEADDR is always set.", boolean)
    ] = False
    metrics_bind_address: Annotated[
        str,
        Flag(SERVING, "host:port of health and metrics by plain HTTP, open to all; 0 is off."),
    ] = "0"
    authentication_kubeconfig: Annotated[
        str,
        Flag(AUTHENTICATION, "Kubeconfig file for TokenReviews; without it, the manager's own."),
    ] = ""
    authentication_token_webhook_cache_ttl: Annotated[
        float,
        Flag(AUTHENTICATION, "How long the review of a token is cached.", duration, at_least(0)),
    ] = 10.0
    authentication_skip_lookup: Annotated[
        bool,
        Flag(
            AUTHENTICATION,
            "Do not read the CAs from the ConfigMap extension-apiserver-authentication.",
            boolean,
        ),
    ] = False
    authentication_tolerate_lookup_failure: Annotated[
        bool,
        Flag(
            AUTHENTICATION,
            "Serve even if extension-apiserver-authentication cannot be read.",
            boolean,
        ),
    ] = False
    client_ca_file: Annotated[
        str, Flag(AUTHENTICATION, "File with the CAs of clients' certificates.")
    ] = ""
    requestheader_client_ca_file: Annotated[
        str, Flag(AUTHENTICATION, "File with the CAs of front proxies.")
    ] = ""
    requestheader_allowed_names: Annotated[
        tuple[str, ...],
        Flag(AUTHENTICATION, "Common names of front proxies; if empty, any name.", names),
    ] = ()
    requestheader_username_headers: Annotated[
        tuple[str, ...], Flag(AUTHENTICATION, "Headers with the user's name.", names)
    ] = ("x-remote-user",)
    requestheader_uid_headers: Annotated[
        tuple[str, ...], Flag(AUTHENTICATION, "Headers with the user's UID.", names)
    ] = ()
    requestheader_group_headers: Annotated[
        tuple[str, ...], Flag(AUTHENTICATION, "Headers with the user's groups.", names)
    ] = ("x-remote-group",)
    requestheader_extra_headers_prefix: Annotated[
        tuple[str, ...],
        Flag(AUTHENTICATION, "Prefixes of headers with more about the user.", names),
    ] = ("x-remote-extra-",)
    authorization_kubeconfig: Annotated[
        str,
        Flag(AUTHORIZATION, "Kubeconfig file for access reviews; without it, the manager's own."),
    ] = ""
    authorization_webhook_cache_authorized_ttl: Annotated[
        float,
        Flag(
            AUTHORIZATION, "How long an access review that allows is cached.", duration, at_least(0)
        ),
    ] = 10.0
    authorization_webhook_cache_unauthorized_ttl: Annotated[
        float,
        Flag(
            AUTHORIZATION, "How long an access review that denies is cached.", duration, at_least(0)
        ),
    ] = 10.0
    authorization_always_allow_paths: Annotated[
        tuple[str, ...],
        Flag(
            AUTHORIZATION,
            "Paths that need no authorization; a * at the end matches any ending.",
            names,
        ),
    ] = ("/healthz", "/readyz", "/livez")
    webhooks: Annotated[
        tuple[str, ...],
        Flag(
            WEBHOOK,
            "Admission webhooks to serve: '*' is all, 'name' adds one, '-name' removes it.",
            names,
        ),
    ] = ()
    webhook_bind_address: Annotated[
        str, Flag(WEBHOOK, "IP address of --webhook-secure-port.", address)
    ] = "0.0.0.0"  # noqa: S104 - the API server comes from outside of the pod
    webhook_secure_port: Annotated[int, Flag(WEBHOOK, "Port of the webhooks; 0 is off.", port)] = (
        10260
    )
    webhook_cert_dir: Annotated[
        str,
        Flag(WEBHOOK, "Folder of the certificate that is made without --webhook-tls-cert-file."),
    ] = ""
    webhook_tls_cert_file: Annotated[
        str, Flag(WEBHOOK, "File with the webhooks' certificate and its chain.")
    ] = ""
    webhook_tls_private_key_file: Annotated[
        str, Flag(WEBHOOK, "File with the key of the webhooks' certificate.")
    ] = ""
    webhook_tls_cipher_suites: Annotated[
        tuple[str, ...],
        Flag(WEBHOOK, "Cipher suites of the webhooks' TLS, as in --tls-cipher-suites.", names),
    ] = ()
    webhook_tls_min_version: Annotated[
        str,
        Flag(
            WEBHOOK,
            "Lowest version of the webhooks' TLS, as in --tls-min-version.",
            check=_tls_version,
        ),
    ] = ""
    webhook_tls_curve_preferences: Annotated[
        tuple[int, ...],
        Flag(WEBHOOK, "Curve of the webhooks' TLS, as in --tls-curve-preferences.", integers),
    ] = ()
    webhook_tls_sni_cert_key: Annotated[
        tuple[NamedCertificate, ...],
        Flag(
            WEBHOOK,
            "Another webhook certificate for names, as in --tls-sni-cert-key; repeatable.",
            certificate,
            repeated=True,
        ),
    ] = ()
    webhook_disable_http2_serving: Annotated[
        bool, Flag(WEBHOOK, "Has no effect: only HTTP/1.1 is served.", boolean)
    ] = False
