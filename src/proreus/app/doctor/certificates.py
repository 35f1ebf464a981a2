"""Find kubelets that wait for a serving certificate. Pure."""

from collections.abc import Iterator
from datetime import datetime

from proreus.app.doctor.observed import Finding, Observed, ago, span
from proreus.controllers.kubelet_serving.plan import is_pending, node_name
from proreus.kube.objects import CertificateSigningRequest


def findings(observed: Observed) -> Iterator[Finding]:
    """Find nodes whose kubelet's newest request for a serving certificate waits."""
    newest: dict[str, CertificateSigningRequest] = {}
    for request in sorted(observed.requests, key=lambda one: ago(observed.now, _made(one))):
        newest.setdefault(node_name(request), request)
    said = {one.name: one.message for one in observed.not_approved}
    for node, request in sorted(newest.items()):
        age = ago(observed.now, request.metadata.creation_timestamp)
        if not node or not is_pending(request) or age < observed.patience:
            continue
        name = request.metadata.name
        yield Finding(
            "serving-certificate-pending",
            f"node/{node}",
            "the node's kubelet has no serving certificate, so kubectl logs and exec fail for it",
            f"its request {name} has waited for {span(age)}: "
            f"{said.get(name, 'no event says why; does the manager run?')}",
            "correct what the manager objects to, or look at the request and run "
            f"`kubectl certificate approve {name}`",
        )


def _made(request: CertificateSigningRequest) -> datetime | None:
    return request.metadata.creation_timestamp
