"""Make requests to the API server as values. Pure: `kube.client` sends them."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from proreus.kube.objects import (
    CertificateSigningRequest,
    ConfigMap,
    EndpointSlice,
    Namespace,
    Node,
    PersistentVolume,
    Secret,
    Service,
    StorageClass,
    only_labels,
)
from proreus.kube.patch import Patch
from proreus.kube.pods import NodeLease, Pod, Pulse
from proreus.kube.whole import with_whole_taints

T = TypeVar("T")

JSON = "application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The `Accept` header of writes: only uid and resourceVersion of the answer are read."""

PAGE = 500
"""Objects per page of a list."""

TIMEOUT = 30.0
"""Seconds that a request may take, with all its retries."""

WATCH_GRACE = 30.0
"""Seconds that a watch may last beyond the `timeoutSeconds` of its request."""


def _as_decoded(body: bytes, objects: tuple[T, ...]) -> tuple[T, ...]:  # noqa: ARG001
    return objects


def _only_labels(body: bytes, found: tuple[Namespace, ...]) -> tuple[Namespace, ...]:  # noqa: ARG001
    return tuple(map(only_labels, found))


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A kind of object and where the API server keeps it; `type` is its decoded form.

    `completed` adds to the objects decoded from a body what only the body itself tells, or leaves
    out what nobody reads.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    completed: Callable[[bytes, tuple[T, ...]], tuple[T, ...]] = _as_decoded

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all (in a namespace, or everywhere)."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def named_path(self, namespace: str, name: str, subresource: str = "") -> str:
        """Return the path of one object.

        Raises:
            ValueError: there is no name, so that the path would be that of all objects, or the
                namespace does not fit the resource.
        """
        if not name:
            raise ValueError(f"{self.kind}: the name is empty")
        self._check_namespace(namespace)
        return self.path(namespace, name, subresource)

    def collection_path(self, namespace: str) -> str:
        """Return the path to create an object at.

        Raises:
            ValueError: the namespace does not fit the resource.
        """
        self._check_namespace(namespace)
        return self.path(namespace)

    def _check_namespace(self, namespace: str) -> None:
        if bool(namespace) != self.namespaced:
            need = "needs a namespace" if self.namespaced else "has no namespace"
            raise ValueError(f"{self.kind} {need}: {namespace!r} was given")


NODES = Resource(
    "", "v1", "nodes", "Node", namespaced=False, type=Node, completed=with_whole_taints
)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True, type=Service)
ENDPOINT_SLICES = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True, type=EndpointSlice
)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True, type=Secret)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, type=PersistentVolume
)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, type=StorageClass
)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=Namespace)
LABELLED_NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", namespaced=False, type=Namespace, completed=_only_labels
)
"""Namespaces with nothing but what a cache of their labels needs."""
CERTIFICATE_SIGNING_REQUESTS = Resource(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    namespaced=False,
    type=CertificateSigningRequest,
)
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=dict[str, Any]
)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True, type=dict[str, Any])
LEASES = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=dict[str, Any]
)
"""Leases are dicts, because they are written back whole: fields that we do not know are kept."""
NODE_LEASES = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=NodeLease
)
"""The leases of kubelets, which are only read."""
PULSES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Pulse)
"""Nodes, as those read them who watch whether kubelets live."""
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)


class Request(msgspec.Struct, frozen=True):
    """A request to the API server. `timeout` is in seconds for all tries together."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""
    accept: str = JSON
    timeout: float = TIMEOUT

    @property
    def read(self) -> bool:
        """Whether the request changes nothing."""
        return self.method == "GET"


def get(resource: Resource[Any], name: str, namespace: str = "") -> Request:
    """Read one object."""
    return Request("GET", resource.named_path(namespace, name))


def list_page(
    resource: Resource[Any],
    namespace: str = "",
    *,
    limit: int = PAGE,
    continue_: str = "",
    label_selector: str = "",
    field_selector: str = "",
) -> Request:
    """Read one page of a list; `continue_` is the previous page's token.

    resourceVersion is left unset: with "0" the API server ignores `limit`.
    """
    query = (("limit", str(limit)), ("continue", continue_))
    selectors = _selectors(label_selector, field_selector)
    return Request("GET", resource.path(namespace), _given(*query, *selectors))


def watch(
    resource: Resource[Any],
    namespace: str = "",
    *,
    resource_version: str,
    timeout_seconds: int,
    label_selector: str = "",
    field_selector: str = "",
) -> Request:
    """Watch changes after `resource_version`, with bookmarks, for `timeout_seconds`."""
    return Request(
        "GET",
        resource.path(namespace),
        _given(
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(timeout_seconds)),
            *_selectors(label_selector, field_selector),
        ),
        timeout=timeout_seconds + WATCH_GRACE,
    )


def create(
    resource: Resource[Any],
    body: Mapping[str, Any],
    namespace: str = "",
    *,
    partial_answer: bool = True,
) -> Request:
    """Create an object; apiVersion and kind are added."""
    return Request(
        "POST",
        resource.collection_path(namespace),
        body=_whole(resource, body),
        content_type=JSON,
        accept=PARTIAL if partial_answer else JSON,
    )


def token_request(account: str, namespace: str, seconds: int) -> Request:
    """Request a service account's token for so many seconds and the API server's audience."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    return Request(
        "POST",
        SERVICE_ACCOUNTS.named_path(namespace, account, "token"),
        body=msgspec.json.encode(body),
        content_type=JSON,
    )


def patch(
    resource: Resource[Any],
    name: str,
    patch: Patch,
    namespace: str = "",
    subresource: str = "",
    *,
    partial_answer: bool = True,
) -> Request:
    """Change an object or its subresource."""
    return Request(
        "PATCH",
        resource.named_path(namespace, name, subresource),
        body=msgspec.json.encode(patch.body),
        content_type=patch.type,
        accept=PARTIAL if partial_answer else JSON,
    )


def delete(
    resource: Resource[Any],
    name: str,
    namespace: str = "",
    *,
    uid: str = "",
    resource_version: str = "",
) -> Request:
    """Delete one object, if it still has that uid and version (where given)."""
    preconditions = dict(_given(("uid", uid), ("resourceVersion", resource_version)))
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    return Request(
        "DELETE",
        resource.named_path(namespace, name),
        body=msgspec.json.encode(options),
        content_type=JSON,
    )


def replace_lease(namespace: str, name: str, body: Mapping[str, Any]) -> Request:
    """Write a whole Lease back, with the resourceVersion that it was read with."""
    return Request(
        "PUT",
        LEASES.named_path(namespace, name),
        body=_whole(LEASES, body),
        content_type=JSON,
    )


def _whole(resource: Resource[Any], body: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})


def _selectors(label: str, field: str) -> tuple[tuple[str, str], ...]:
    return (("labelSelector", label), ("fieldSelector", field))


def _given(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in pairs if value)


def _segment(name: str) -> str:
    """Quote a name as one path segment; proxies would drop "." and ".."."""
    if name in (".", ".."):
        raise ValueError(f"{name!r} cannot be the name of an object")
    return quote(name, safe="")
