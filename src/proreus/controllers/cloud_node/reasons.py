"""List the reasons why a Node is not as it should be, with their messages."""

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
    """The node has what the cloud says about its machine."""
    TOPOLOGY_DIFFERS = "TopologyDiffers"
    """Zone or region of the machine are not those on the node's labels.

    These are never changed, since volumes depend on them: delete the Node object and let the
    kubelet register it again.
    """
    INSTANCE_NOT_FOUND = "InstanceNotFound"
    """The cloud has no such machine.

    Compare the node's name, or its provider id, with the cloud's.
    """
    INSTANCE_PENDING = "InstancePending"
    """The cloud says that the machine is not ready to be described; it is asked again."""
    NO_ANSWER = "NoAnswer"
    """The cloud's answer says nothing about this node; it is asked again."""
    CLOUD_UNAVAILABLE = "CloudUnavailable"
    """The cloud failed; the message has its words. It is asked again."""
    CLOUD_TIMEOUT = "CloudTimeout"
    """The cloud did not answer in time; it is asked again."""
    THROTTLED = "Throttled"
    """The cloud's quota of calls is used up; it is asked again when there is room."""
    UNAUTHENTICATED = "Unauthenticated"
    """The cloud refuses the credentials: renew those of the cloud-config."""
    NOT_SUPPORTED = "NotSupported"
    """The cloud does not support what describing the machine needs; the message names it."""
    INVALID_REQUEST = "InvalidRequest"
    """The cloud finds something wrong with the request; the message names it."""
    CONFIG_ERROR = "ConfigError"
    """Something is wrong with the cloud-config; the message names it."""
    IDENTITY_CONFLICT = "IdentityConflict"
    """The node's provider id is that of another machine than the one found.

    One of the two is a leftover.
    """
    PROVIDER_ID_MISSING = "ProviderIDMissing"
    """The cloud gave no provider id for the machine."""
    PROVIDED_NODE_IP_INVALID = "ProvidedNodeIPInvalid"
    """The kubelet's `--node-ip` is no address, or more than one of a family."""
    PROVIDED_NODE_IP_MISMATCH = "ProvidedNodeIPMismatch"
    """The kubelet's `--node-ip` is none of the machine's addresses in the cloud."""
    NOT_OWNED = "NotOwned"
    """The machine is not of this cloud, region and account.

    Its own manager must initialise the node.
    """


class Failure(msgspec.Struct, frozen=True):
    """The reason why a node cannot be initialised or refreshed now.

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
    """Return the failure of a node whose machine is not of this cloud, region and account."""
    return Failure(
        Reason.NOT_OWNED,
        "the machine is not of this cloud, region and account; "
        "its own cloud-controller-manager must initialise the node",
        retry=False,
    )


def failure(node: Node, answer: NotFound | CloudError | None) -> Failure:
    """Return why the cloud's answer about `node` does not help; None means it was left out."""
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
