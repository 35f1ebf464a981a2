"""Check that a Service has nothing where the cloud-config does not look."""

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.cloudstack.balancing.reading import Reader
from proreus.providers.cloudstack.machines import id_of, misplaced


async def check_elsewhere(reader: Reader, ref: LoadBalancerRef, project: str) -> None:
    """Check that a Service has nothing in another project than that of the cloud-config.

    A list shows nothing of other projects: without this check, all that was made before
    `project-id` was changed would be left behind, as if it were gone. Some may be here, too, made
    since then.

    Raises:
        CloudError: The Service has objects there, or CloudStack gives no usable answer.
    """
    for kind, one in await reader.everywhere(ref):
        if where := misplaced(one, project):
            raise CloudError(
                f"the Service's {kind} {id_of(one)} {where}: correct project-id in [Global], or"
                " delete what is there by hand"
            )
