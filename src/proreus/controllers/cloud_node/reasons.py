"""Why a Node is not as it should be: a closed list of reasons and the words for each."""

from enum import StrEnum

import msgspec

from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    IdentityConflict,
    ImplementedElsewhere,
    InvalidRequest,
    NotSupported,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import NotFound
from proreus.controllers.events import scrub
from proreus.kube.objects import Node


class Reason(StrEnum):
    """Every reason that the condition `CloudInitialized` can have."""

    INITIALIZED = "Initialized"
    TOPOLOGY_DIFFERS = "TopologyDiffers"
    INSTANCE_NOT_FOUND = "InstanceNotFound"
    INSTANCE_PENDING = "InstancePending"
    NO_ANSWER = "NoAnswer"
    CLOUD_UNAVAILABLE = "CloudUnavailable"
    CLOUD_TIMEOUT = "CloudTimeout"
    THROTTLED = "Throttled"
    UNAUTHENTICATED = "Unauthenticated"
    NOT_SUPPORTED = "NotSupported"
    INVALID_REQUEST = "InvalidRequest"
    CONFIG_ERROR = "ConfigError"
    IDENTITY_CONFLICT = "IdentityConflict"
    PROVIDER_ID_MISSING = "ProviderIDMissing"
    PROVIDED_NODE_IP_INVALID = "ProvidedNodeIPInvalid"
    PROVIDED_NODE_IP_MISMATCH = "ProvidedNodeIPMismatch"
    NOT_OWNED = "NotOwned"


class Failure(msgspec.Struct, frozen=True):
    """Why nothing more could be done for a node now.

    `after` is when to try again, in seconds, where the cloud said; without `retry` only a change
    of the node can help.
    """

    reason: Reason
    message: str
    after: float | None = None
    retry: bool = True


# The first type that fits gives the reason; CloudError, the root, fits always.
_REASONS: tuple[tuple[type[CloudError], Reason], ...] = (
    (Throttled, Reason.THROTTLED),
    (RetryAfter, Reason.INSTANCE_PENDING),
    (Unauthenticated, Reason.UNAUTHENTICATED),
    (CallTimeout, Reason.CLOUD_TIMEOUT),
    (IdentityConflict, Reason.IDENTITY_CONFLICT),
    (NotSupported, Reason.NOT_SUPPORTED),
    (ImplementedElsewhere, Reason.NOT_OWNED),
    (InvalidRequest, Reason.INVALID_REQUEST),
    (ConfigError, Reason.CONFIG_ERROR),
    (CloudError, Reason.CLOUD_UNAVAILABLE),
)


def not_owned() -> Failure:
    """The node's machine is not of this cloud, region and account."""
    return Failure(
        Reason.NOT_OWNED,
        "the machine is not of this cloud, region and account; "
        "its own cloud-controller-manager must initialise the node",
        retry=False,
    )


def failure(node: Node, answer: NotFound | CloudError | None) -> Failure:
    """Why the cloud's answer about `node` does not help; None means it said nothing of it."""
    if answer is None:
        return Failure(Reason.NO_ANSWER, "the cloud's answer says nothing about this node")
    if isinstance(answer, NotFound):
        return Failure(Reason.INSTANCE_NOT_FOUND, _not_found(node))
    reason = next(reason for type_, reason in _REASONS if isinstance(answer, type_))
    if reason is Reason.NOT_OWNED:
        return not_owned()
    after = answer.after if isinstance(answer, Throttled | RetryAfter) else None
    return Failure(reason, scrub(str(answer)) or type(answer).__name__, after)


def _not_found(node: Node) -> str:
    if node.spec.provider_id:
        return f"the cloud has no instance with the provider id {node.spec.provider_id}"
    return (
        f"the cloud has no instance named {node.metadata.name}; give the node its instance's "
        "name, or start the kubelet with --provider-id"
    )
