"""Signatures, compared with those of the vendor's SDK for Python; its Go SDK is in `sdk`."""

from datetime import UTC, datetime

import pytest

from proreus.providers.baidu.config import Credentials
from proreus.providers.baidu.signing import DATE, TOKEN, Signable, signed_headers

from .vendor import BceCredentials, sign

NOW = datetime(2026, 11, 22, 8, 9, 10, tzinfo=UTC)
KEY = "0b0f67dfb88244b289b72b142befad0c"
SECRET = "bad522c2126a4618a8125f4b6cf6356f"


@pytest.mark.parametrize("token", ["", "a/token+of=STS"])
@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/v2/instance", {"maxKeys": "1000", "instanceIds": "i-1,i-2"}),
        ("PUT", "/v1/eip/180.76.1.2", {"bind": "", "clientToken": "b-1"}),
        ("DELETE", "/v1/blb/lb-1", {}),
        ("GET", "/v1/blb", {"name": "CCE/SVC/ü ~*", "a b": "&="}),
    ],
)
def test_a_signature_is_that_of_the_vendors_sdk(
    method: str, path: str, query: dict[str, str], token: str
) -> None:
    host = "blb.bj.baidubce.com:8443"
    ours = signed_headers(Signable(method, host, path, query), Credentials(KEY, SECRET, token), NOW)
    headers = {b"host": host.encode(), DATE.encode(): ours[DATE].encode()}
    if token:
        headers[TOKEN.encode()] = token.encode()
    theirs = sign(
        BceCredentials(KEY, SECRET),
        method.encode(),
        path.encode(),
        headers,
        {name.encode(): value.encode() for name, value in query.items()},
        timestamp=int(NOW.timestamp()),
        headers_to_sign=sorted(headers),
    )
    assert ours["Authorization"] == theirs.decode()
