"""The table of all operations of Baidu AI Cloud that the provider may call; others are not sent.

The policy in `deploy/baidu` is made from it (`tools/baidu_policy.py`).
"""

from collections.abc import Mapping
from typing import Final

import msgspec


class Operation(msgspec.Struct, frozen=True):
    """An operation of an API.

    Attributes:
        service: The first label of its host, such as "blb".
        method: The HTTP method.
        path: The path, with `{}` in the place of each id.
        product: The name of the service in policies.
        right: The permission that the operation needs.
        flag: The parameter without a value that selects one of several operations with one path.
        settles: Whether the operation's effect takes a while after the answer.
    """

    service: str
    method: str
    path: str
    product: str
    right: str
    flag: str = ""
    settles: bool = False

    @property
    def is_read(self) -> bool:
        """Whether the operation changes nothing."""
        return self.method == "GET"


def _blb(method: str, path: str, right: str = "OPERATE", **more: bool | str) -> Operation:
    return msgspec.convert(
        {
            "service": "blb", "method": method, "path": f"/v1/blb{path}", "product": "bce:blb",
            "right": "READ" if method == "GET" else right, **more,
        },
        Operation,
    )  # fmt: skip


def _eip(method: str, path: str, right: str = "OPERATE", **more: bool | str) -> Operation:
    return msgspec.convert(
        {
            "service": "eip", "method": method, "path": f"/v1/eip{path}", "product": "bce:eip",
            "right": "READ" if method == "GET" else right, **more,
        },
        Operation,
    )  # fmt: skip


_NETWORK: Final = "bce:network"

OPERATIONS: Final[Mapping[str, Operation]] = {
    "listInstances": Operation("bcc", "GET", "/v2/instance", "bce:bcc", "VM_READ"),
    "getInstance": Operation("bcc", "GET", "/v2/instance/{}", "bce:bcc", "VM_READ"),
    "listBareMetals": Operation("bbc", "GET", "/v1/instance", "bce:bbc", "READ"),
    "getBareMetal": Operation("bbc", "GET", "/v1/instance/{}", "bce:bbc", "READ"),
    "getVolume": Operation("bcc", "GET", "/v2/volume/{}", "bce:cds", "READ"),
    "listSubnets": Operation("bcc", "GET", "/v1/subnet", _NETWORK, "SUBNET_READ"),
    "listRouteRules": Operation("bcc", "GET", "/v1/route/rule", _NETWORK, "ROUTE_READ"),
    "getRouteTable": Operation("bcc", "GET", "/v1/route", _NETWORK, "ROUTE_READ"),
    "createRouteRule": Operation("bcc", "POST", "/v1/route/rule", _NETWORK, "ROUTE_OPERATE"),
    "deleteRouteRule": Operation("bcc", "DELETE", "/v1/route/rule/{}", _NETWORK, "ROUTE_OPERATE"),
    "listLoadBalancers": _blb("GET", ""),
    "createLoadBalancer": _blb("POST", "", "FULL_CONTROL", settles=True),
    "updateLoadBalancer": _blb("PUT", "/{}"),
    "deleteLoadBalancer": _blb("DELETE", "/{}", "FULL_CONTROL"),
    "listListeners": _blb("GET", "/{}/listener"),
    "createTCPListener": _blb("POST", "/{}/TCPlistener"),
    "createUDPListener": _blb("POST", "/{}/UDPlistener"),
    "createHTTPListener": _blb("POST", "/{}/HTTPlistener"),
    "updateTCPListener": _blb("PUT", "/{}/TCPlistener"),
    "updateUDPListener": _blb("PUT", "/{}/UDPlistener"),
    "updateHTTPListener": _blb("PUT", "/{}/HTTPlistener"),
    "deleteListeners": _blb("PUT", "/{}/listener", flag="batchdelete"),
    "listBackendServers": _blb("GET", "/{}/backendserver"),
    "addBackendServers": _blb("POST", "/{}/backendserver"),
    "removeBackendServers": _blb("PUT", "/{}/backendserver"),
    "listEips": _eip("GET", ""),
    "createEip": _eip("POST", "", "FULL_CONTROL", settles=True),
    "resizeEip": _eip("PUT", "/{}", flag="resize", settles=True),
    "bindEip": _eip("PUT", "/{}", flag="bind", settles=True),
    "unbindEip": _eip("PUT", "/{}", flag="unbind", settles=True),
    "releaseEip": _eip("DELETE", "/{}", "FULL_CONTROL"),
}
"""By the names of the vendor's SDK, more or less."""
