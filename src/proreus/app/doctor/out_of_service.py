"""Find nodes whose machines are powered off, and those that stay out of service. Pure."""

from collections.abc import Iterator

from proreus.app.doctor.observed import Finding, Observed
from proreus.controllers.cloud_node_lifecycle.taints import may_return
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, has_taint, is_ready


def findings(observed: Observed) -> Iterator[Finding]:
    """Find nodes that the manager does not take out of service, or not back."""
    nodes = {node.metadata.name: node for node in observed.nodes}
    for name, one in sorted({one.name: one for one in observed.in_service}.items()):
        node = nodes.get(name)
        if node and not is_ready(node) and not has_taint(node, TAINT_OUT_OF_SERVICE):
            yield Finding(
                "out-of-service-held",
                f"node/{name}",
                "its machine is powered off, but its pods and volumes do not move",
                one.message,
                "make sure that the machine has no power, then `kubectl taint node "
                f"{name} {TAINT_OUT_OF_SERVICE}=nodeshutdown:NoExecute`",
            )
    for name, node in sorted(nodes.items()):
        if may_return(node) and has_taint(node, TAINT_OUT_OF_SERVICE):
            yield Finding(
                "out-of-service-stays",
                f"node/{name}",
                "the node is Ready, but out of service: no pod is scheduled on it",
                f"the manager removes its taint {TAINT_OUT_OF_SERVICE} once the cloud says that the"
                " machine runs",
                "look at the machine in the cloud's console; if it runs, `kubectl taint node "
                f"{name} {TAINT_OUT_OF_SERVICE}-`",
            )
