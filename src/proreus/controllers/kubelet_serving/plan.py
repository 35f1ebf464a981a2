"""Decide whether a kubelet gets the serving certificate that it asks for. Pure.

The signer `kubernetes.io/kubelet-serving` signs whatever is approved, so what a request may say is
checked here, as the API server's documentation of signers has it:
https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/

A kubelet writes its Node's provider id and addresses itself, so nothing of that is believed:

* Every name and address must be one that the cloud reports for the machine of that provider id.
* The machine must be this Node's, and nobody else's: the cloud has the Node's name for it, it has
  all addresses of the Node, and no other Node claims the id, or what is asked for.

Nothing is denied: a denial is for ever, and somebody else may know more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import msgspec

from proreus.cloudprovider import CloudError, Instance, InstanceAnswer, Ownership
from proreus.cloudprovider.addresses import is_address, parsed_address, plain_address
from proreus.controllers.events import PlannedEvent, scrub
from proreus.kube.messages import some_of
from proreus.kube.objects import CertificateSigningRequest, Condition, Node
from proreus.kube.patch import Patch, approval

SIGNER: Final = "kubernetes.io/kubelet-serving"
"""The signer of the certificates with which kubelets serve `kubectl logs` and `exec`."""

SELECTOR: Final = f"spec.signerName={SIGNER}"
"""The field selector of all requests for serving certificates of kubelets."""

USER: Final = "system:node:"
"""What the user name of a kubelet begins with; the name of its Node follows."""

GROUP: Final = "system:nodes"
"""The group of all kubelets, and the organization in their certificates."""

APPROVED: Final = "Approved"
NOT_APPROVED: Final = "ServingCertificateNotApproved"
"""The reason of the event on a request that is not approved."""

RETRY: Final = 60.0
"""Seconds until a request is looked at again that is not approved."""

SOON: Final = 10.0
"""The same while that is usual, as for a new Node, and while the cloud does not answer."""

PATIENCE: Final = timedelta(seconds=30)
"""The age of a request until which nothing is said while a new Node is being initialised."""

_USAGES: Final = (
    frozenset({"digital signature", "server auth"}),
    frozenset({"digital signature", "key encipherment", "server auth"}),
)
_DECIDED: Final = frozenset({APPROVED, "Denied", "Failed"})
_NAMES: Final = frozenset({"Hostname", "InternalDNS", "ExternalDNS"})

Address = IPv4Address | IPv6Address


class Asked(msgspec.Struct, frozen=True):
    """What a request asks for; `strange` is what no kubelet asks for, or why it is not readable."""

    common_names: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()
    strange: tuple[str, ...] = ()


class Observed(msgspec.Struct, frozen=True):
    """What is known of a request: its content, the Node, and what the cloud says of its machine.

    `answer` is None where the cloud was not asked. `rivals` are the names of other Nodes by what
    they claim: a provider id, a name, an address.
    """

    asked: Asked = Asked()
    node: Node | None = None
    ownership: Ownership = Ownership.UNKNOWN
    answer: InstanceAnswer | None = None
    rivals: Mapping[str, Sequence[str]] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not approved; `passes`: that is usual while a new Node is initialised."""

    message: str
    passes: bool = False
    final: bool = False


class Change(msgspec.Struct, frozen=True):
    """What to do about a request: approve it, or say why not and look again `after` seconds."""

    patch: Patch | None = None
    event: PlannedEvent | None = None
    refusal: str = ""
    after: float | None = None


def is_pending(request: CertificateSigningRequest) -> bool:
    """Tell whether a request to this signer waits for a decision."""
    decided = {one.type for one in request.status.conditions} & _DECIDED
    return request.spec.signer_name == SIGNER and not decided and not request.status.certificate


def node_name(request: CertificateSigningRequest) -> str:
    """Return the name of the Node whose kubelet asks; "" if none does."""
    user = request.spec.username
    return user.removeprefix(USER) if user.startswith(USER) else ""


def matters(old: Node | None, new: Node) -> bool:
    """Tell whether a Node's change may let its request be approved."""
    return old is None or (old.spec.provider_id, old.status.addresses) != (
        new.spec.provider_id,
        new.status.addresses,
    )


def is_to_ask(request: CertificateSigningRequest, seen: Observed) -> bool:
    """Tell whether the cloud has to be asked about the Node's machine."""
    return (
        seen.node is not None
        and bool(seen.node.spec.provider_id)
        and seen.ownership is Ownership.YES
        and not malformed(request, seen.asked)
    )


def rivals(nodes: Iterable[Node], about: Iterable[Observed]) -> dict[str, list[str]]:
    """Return the Nodes that claim each id, name and address in the requests, by what they claim."""
    claimed: dict[str, list[str]] = {}
    for seen in about:
        if seen.node is not None and seen.node.spec.provider_id:
            claimed[seen.node.spec.provider_id] = []
        claimed.update((name.lower(), []) for name in seen.asked.names)
        claimed.update((str(address), []) for address in seen.asked.addresses)
    for node in nodes:
        name = node.metadata.name
        own = {node.spec.provider_id, name.lower()}
        own.update(_plain(one.address) for one in node.status.addresses)
        for claim in own & claimed.keys():
            claimed[claim].append(name)
    return claimed


def plan(
    request: CertificateSigningRequest, seen: Observed, error: Exception | None, now: datetime
) -> Change | None:
    """Decide about one request; `error` is why the cloud could not be asked."""
    if not is_pending(request) or seen.ownership is Ownership.NO:
        return None
    refusal = _refusal(request, seen, error)
    if refusal is None:
        message = f"the cloud reports all of it for {_node(seen).spec.provider_id}"
        return Change(approval(request, Condition(APPROVED, "True", "AutoApproved", message)))
    created = request.metadata.creation_timestamp
    is_new = created is not None and now - created < PATIENCE
    said = f"not approved: {scrub(refusal.message)}"
    return Change(
        event=None if refusal.passes and is_new else PlannedEvent("Warning", NOT_APPROVED, said),
        refusal=refusal.message,
        after=None if refusal.final else SOON if refusal.passes else RETRY,
    )


def malformed(request: CertificateSigningRequest, asked: Asked) -> str:
    """Return what no kubelet would send to this signer, or ""."""
    return "; ".join(_faults(request, asked))


def _faults(request: CertificateSigningRequest, asked: Asked) -> Iterator[str]:
    spec = request.spec
    yield from asked.strange
    if not node_name(request) or GROUP not in spec.groups:
        yield f"{spec.username} is not a kubelet ({USER}NAME in the group {GROUP})"
    if asked.common_names != (spec.username,):
        yield f"the common name {_listed(asked.common_names)} is not the user's, {spec.username}"
    if asked.organizations != (GROUP,):
        yield f"the organization is {_listed(asked.organizations)}, not {GROUP}"
    if frozenset(spec.usages) not in _USAGES:
        yield f"the usages are {_listed(spec.usages)}, not those of a server"
    if not asked.names and not asked.addresses:
        yield "it asks for no name and no address"


def _refusal(
    request: CertificateSigningRequest, seen: Observed, error: Exception | None
) -> Refusal | None:
    """Return why the request is not approved; None if it is."""
    if faults := malformed(request, seen.asked):
        return Refusal(f"no kubelet asks for this: {faults}", final=True)
    found = _machine(node_name(request), seen, error)
    if isinstance(found, str):
        return Refusal(found, passes=True)
    node = _node(seen)
    if found.self_reported:
        return Refusal(
            f"the addresses of {node.metadata.name} are what its kubelet says, the cloud knows"
            " none: list the machine's addresses in the inventory of the cloud-config"
        )
    if doubt := _not_its_machine(node, found, seen.rivals):
        return Refusal(doubt)
    return _not_reported(seen, found)


def _machine(name: str, seen: Observed, error: Exception | None) -> Instance | str:
    """Return the machine behind a Node, or why it is not known."""
    if seen.node is None:
        return f"there is no Node {name}"
    id_ = seen.node.spec.provider_id
    if not id_:
        return f"the Node {name} has no provider id yet"
    if error is not None or isinstance(seen.answer, CloudError):
        return f"the cloud does not describe the machine of {name}: {error or seen.answer}"
    if seen.ownership is not Ownership.YES or not isinstance(seen.answer, Instance):
        return f"the cloud knows no machine {id_}"
    return seen.answer


def _not_its_machine(node: Node, found: Instance, claims: Mapping[str, Sequence[str]]) -> str:
    """Return why the machine may not be this Node's, or ""."""
    name, id_ = node.metadata.name, node.spec.provider_id
    if others := _others(claims, id_, name):
        return f"{some_of(others)} also has the provider id {id_}: delete the Node that is wrong"
    if name.lower() not in _names(found):
        return (
            f"the cloud calls the machine {id_} {some_of(_names(found)) or 'nothing'}, not {name}: "
            "the Node's provider id is another machine's, or its kubelet needs --hostname-override"
        )
    reported = {_plain(one.address) for one in found.addresses}
    own = {text for one in node.status.addresses if is_address(text := _plain(one.address))}
    if more := own - reported:
        return f"the Node has {some_of(more)}, which the cloud does not report for {id_}"
    return ""


def _not_reported(seen: Observed, found: Instance) -> Refusal | None:
    """Return which name or address is not the machine's, or another Node's, too."""
    names, name = _names(found), _node(seen).metadata.name
    known = {parsed_address(_plain(one.address)) for one in found.addresses}
    more = [one for one in seen.asked.names if one.lower() not in names]
    more += [str(one) for one in seen.asked.addresses if one not in known]
    if more:
        return Refusal(
            f"it asks for {some_of(more)}, which the cloud does not report for {found.provider_id}"
        )
    for claim in (*(one.lower() for one in seen.asked.names), *map(str, seen.asked.addresses)):
        if others := _others(seen.rivals, claim, name):
            return Refusal(f"it asks for {claim}, which {some_of(others)} has, too")
    return None


def _node(seen: Observed) -> Node:
    return seen.node or Node()


def _names(found: Instance) -> frozenset[str]:
    """Return the names that the cloud reports for a machine, in small letters."""
    listed = (one.address for one in found.addresses if one.type in _NAMES)
    return frozenset(name.lower() for name in (found.name, *listed) if name)


def _others(claims: Mapping[str, Sequence[str]], claim: str, name: str) -> list[str]:
    return [other for other in claims.get(claim, ()) if other != name]


def _plain(text: str) -> str:
    """Return an address as `ipaddress` writes it, a name in small letters."""
    return plain_address(text).lower()


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "none"
