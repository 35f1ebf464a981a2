"""Choose a Node's addresses: the cloud's, with the kubelet's `--node-ip` first.

The kubelet leaves its `--node-ip` in the annotation `alpha.kubernetes.io/provided-node-ip`
(KEP-3705 for two of them). Such an address must be among the cloud's; it then comes first and is
the only one of its type.
"""

from ipaddress import IPv4Address, IPv6Address

from proreus.cloudprovider.addresses import parsed_address
from proreus.kube.objects import ANNOTATION_PROVIDED_NODE_IP, Node, NodeAddress

HOSTNAME = "Hostname"
DUAL_STACK = 2


class ProvidedNodeIPInvalid(ValueError):
    """The error that the annotation is neither one address nor a pair of both families."""


class ProvidedNodeIPMismatch(ValueError):
    """The error that the cloud does not know the address that the annotation names."""


def provided(annotation: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """Read the annotation: one address, or a pair of both families.

    Raises:
        ProvidedNodeIPInvalid: The text is anything else, or a pair with 0.0.0.0 or ::.
    """
    ips = tuple(_parsed(text) for text in annotation.split(","))
    if None in ips:
        raise ProvidedNodeIPInvalid(_invalid(annotation, "is not a list of IP addresses"))
    found = tuple(ip for ip in ips if ip is not None)
    if len(found) > DUAL_STACK:
        raise ProvidedNodeIPInvalid(_invalid(annotation, "has more than two addresses"))
    if len(found) == DUAL_STACK:
        if found[0].version == found[1].version:
            raise ProvidedNodeIPInvalid(_invalid(annotation, "has two addresses of one family"))
        if any(ip.is_unspecified for ip in found):
            raise ProvidedNodeIPInvalid(_invalid(annotation, "pairs an unspecified address"))
    return found


def preferred(annotation: str, cloud: tuple[NodeAddress, ...]) -> tuple[NodeAddress, ...]:
    """Put the addresses that the annotation names first and drop others of their types.

    An address that the cloud lists under several types keeps them all.

    Raises:
        ProvidedNodeIPInvalid: The annotation cannot be read.
        ProvidedNodeIPMismatch: An address in the annotation is not among the cloud's.
    """
    first: list[NodeAddress] = []
    for ip in provided(annotation):
        matching = [address for address in cloud if _parsed(address.address) == ip]
        if not matching:
            raise ProvidedNodeIPMismatch(
                f"the kubelet's --node-ip {ip} (annotation {ANNOTATION_PROVIDED_NODE_IP}) is not "
                f"among the addresses the cloud gives: {_listed(cloud)}; correct one of the two"
            )
        first += matching
    claimed = {address.type for address in first}
    return (*first, *(address for address in cloud if address.type not in claimed))


def desired(node: Node, cloud: tuple[NodeAddress, ...]) -> tuple[NodeAddress, ...]:
    """Return the addresses that `node` should have when the cloud gives `cloud`.

    A cloud that gives no address at all clears none; one that gives no host name leaves the
    node's. No entry appears twice, because the API server refuses that.

    Raises:
        ProvidedNodeIPInvalid: The node's annotation cannot be read.
        ProvidedNodeIPMismatch: The annotation names an address that is not among the cloud's.
    """
    annotation = node.metadata.annotations.get(ANNOTATION_PROVIDED_NODE_IP)
    chosen = cloud if annotation is None else preferred(annotation, cloud)
    if not chosen:
        return node.status.addresses
    if not any(address.type == HOSTNAME for address in cloud):
        chosen += tuple(old for old in node.status.addresses if old.type == HOSTNAME)
    return tuple(dict.fromkeys(chosen))


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address, an IPv4-mapped one as IPv4; None if `text` is no address."""
    ip = parsed_address(text)
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def _invalid(annotation: str, problem: str) -> str:
    return (
        f"annotation {ANNOTATION_PROVIDED_NODE_IP} {annotation!r} {problem}; start the kubelet "
        "with one --node-ip, or with one per family"
    )


def _listed(cloud: tuple[NodeAddress, ...]) -> str:
    return ", ".join(f"{a.type} {a.address}" for a in cloud) or "none"
