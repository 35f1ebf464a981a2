"""Decide which addresses a Service may name beside its own. Pure.

The security group lets clients reach them, and the Service's status shows them, so that each node
sends what comes for them to the Service. So the address of another Service or of a node is no
tenant's to name.
"""

from collections.abc import Iterator, Sequence

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Owner, refusal
from proreus.providers.azure.balancing.addresses import owners_of
from proreus.providers.azure.balancing.annotations import PREFIX
from proreus.providers.azure.balancing.index import Index
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.machines import part

ANNOTATION = f"{PREFIX}azure-additional-public-ips"


def check_additional(jobs: Sequence[Job], state: State, scene: Scene, known: Index) -> None:
    """Refuse addresses of others, but for those that a Service has already.

    Raises:
        InvalidRequest: An address is another's; names the annotation and the remedy.
    """
    for job in jobs:
        shown = {point.ip for point in job.ref.last_ingress}
        for address in job.options.additional if job.lb is not None else ():
            why = "" if address in shown else refusal_of(job, address, state, scene, known)
            if why:
                raise InvalidRequest(f"annotation {ANNOTATION}: {address}: {why}: leave it out")


def refusal_of(job: Job, address: str, state: State, scene: Scene, known: Index) -> str:
    """Return why a Service may not name an address, or may not close its ports; "" if it may."""
    tenants, ref = scene.place.config.tenants, job.ref
    node = scene.node_addresses.get(address)
    if node and not tenants.lists(ref.namespace, (address,)):
        return f"it is an address of the node {node}"
    return refusal(_owners(ref, address, state, scene, known), ref, tenants, (address,))


def _owners(
    ref: LoadBalancerRef, address: str, state: State, scene: Scene, known: Index
) -> Iterator[Owner]:
    """Return the owners of an address, as far as marks and frontends tell."""
    for one in state.addresses.values():
        if part(one, "ipAddress") == address:
            yield from owners_of(one)
    for base, frontends in known.frontends.items():
        namespace = scene.services.get(base, "")
        if namespace and any(found == address for _, _, found in frontends):
            uid = ref.uid if base == ref.name else ""
            yield Owner(cluster_uid=ref.cluster.uid, namespace=namespace, service_uid=uid)
