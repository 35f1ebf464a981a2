"""Observe what the cloud says of the machines whose kubelets ask for serving certificates."""

from collections.abc import Sequence

from msgspec.structs import replace

from proreus.cloudprovider import Instances, Lister, Ownership
from proreus.containment.batches import outage
from proreus.containment.inventory import Inventory
from proreus.controllers.kubelet_serving.plan import (
    Observed,
    is_to_ask,
    node_name,
    rivals,
)
from proreus.controllers.kubelet_serving.signing_request import read
from proreus.kube.objects import CertificateSigningRequest, Node


async def observe(
    requests: Sequence[CertificateSigningRequest],
    nodes: Lister[Node],
    instances: Instances,
    inventory: Inventory,
    *,
    not_before: float,
) -> dict[str, Observed]:
    """Ask the cloud about all machines together; return what is known of each request, by name.

    Args:
        requests: The requests in question.
        nodes: All nodes of the cluster.
        instances: The provider's capability `Instances`.
        inventory: The inventory that asks about the machines.
        not_before: The earliest time, of the inventory's clock, at which a call may have begun.

    Raises:
        CloudError: The cloud answers for none of them.
    """
    seen = {one.metadata.name: known(one, nodes, instances) for one in requests}
    asking = [one for one in requests if is_to_ask(one, seen[one.metadata.name])]
    machines = {node_name(one): seen[one.metadata.name].node for one in asking}
    claims = rivals(nodes.all(), seen.values())
    answers = await inventory.get(
        [node for node in machines.values() if node is not None], not_before=not_before
    )
    if error := outage(answers):
        raise error
    for one in asking:
        name = one.metadata.name
        seen[name] = replace(seen[name], answer=answers[node_name(one)].answer)
    return {name: replace(one, rivals=claims) for name, one in seen.items()}


def known(
    request: CertificateSigningRequest, nodes: Lister[Node], instances: Instances
) -> Observed:
    """Return what is known of a request without a question to the cloud."""
    node = nodes.get(node_name(request))
    owned = Ownership.UNKNOWN if node is None else instances.owns(node)
    return Observed(read(request.spec.request), node, owned)
