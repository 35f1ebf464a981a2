"""Read the flags about a server's TLS: Go's names, and OpenSSL's for them."""

import ssl
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from proreus.runtime import klog

log = klog.logger(__name__)

CIPHER_SUITES: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
"""The cipher suites of TLS 1.2 by Go's names, with OpenSSL's. 3DES and RC4 are not offered."""

SUITES_OF_TLS_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""TLS 1.3's suites: the flag accepts them, and they are always on, as in Go."""

CURVES: Final[Mapping[int, str]] = {
    23: "prime256v1",
    24: "secp384r1",
    25: "secp521r1",
    29: "X25519",
    4587: "SecP256r1MLKEM768",
    4588: "X25519MLKEM768",
    4589: "SecP384r1MLKEM1024",
}
"""The curves that Go knows, by their IANA numbers, with OpenSSL's names."""

VERSIONS: Final = {"VersionTLS13": ssl.TLSVersion.TLSv1_3}
"""The lowest TLS versions by Go's names; unknown names mean 1.2, Go's default."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags about the TLS of one server."""

    prefix: str = "tls"
    """The prefix of its flags; "webhook-tls" for the webhooks'."""
    pair_name: str = "cloud-controller-manager"
    """Name of the files in `cert_dir`, without .crt and .key."""
    cert_dir: str = ""
    cert_file: str = ""
    private_key_file: str = ""
    sni: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Certificate, key and the names they serve; without names, those in the certificate."""
    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


def openssl_suites(names: Iterable[str]) -> list[str]:
    """Return OpenSSL's names of the suites of TLS 1.2 that can be chosen."""
    return list(dict.fromkeys(CIPHER_SUITES[name] for name in names if name in CIPHER_SUITES))


def problems(settings: Settings) -> list[str]:
    """Return the mistakes in the flags, whatever is in the files; each names its flag."""
    flag, found = f"--{settings.prefix}-cipher-suites", list[str]()
    unknown = [
        name
        for name in settings.cipher_suites
        if name not in CIPHER_SUITES and name not in SUITES_OF_TLS_1_3
    ]
    if unknown:
        known = ", ".join(sorted([*CIPHER_SUITES, *SUITES_OF_TLS_1_3]))
        found.append(f"{flag}: {', '.join(unknown)}: not offered; there are {known}")
    curves = [str(one) for one in settings.curve_preferences if one not in CURVES]
    if curves:
        known = ", ".join(f"{number} ({name})" for number, name in CURVES.items())
        flag = f"--{settings.prefix}-curve-preferences"
        found.append(f"{flag}: {', '.join(curves)}: unknown; there are {known}")
    elif len(settings.curve_preferences) == 1:
        curve = CURVES[settings.curve_preferences[0]]
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(curve)
        except ValueError:
            flag = f"--{settings.prefix}-curve-preferences"
            found.append(
                f"{flag}: this OpenSSL cannot offer {curve} alone; choose 23, 24, 25 or 29"
            )
    return found


def warn_without_effect(settings: Settings) -> None:
    """Warn of flags that ask for something that Python's ssl cannot do."""
    if settings.min_version in {"VersionTLS10", "VersionTLS11"}:
        flag = f"--{settings.prefix}-min-version"
        klog.warning(log, "TLS 1.2 is the lowest version that is served", flag=flag)
    if len(settings.curve_preferences) > 1:
        flag = f"--{settings.prefix}-curve-preferences"
        klog.warning(
            log, "Several curves have no effect: Python can choose one curve or none", flag=flag
        )
