"""Refuse claims that cannot grow: the webhook `persistentvolumeclaim-resize`."""

from collections.abc import Awaitable, Callable
from typing import Final

from proreus.cloudprovider import AdmissionRequest, AdmissionResponse
from proreus.controllers.persistent_volume_claim_resize import plan as plans
from proreus.kube.client import Client
from proreus.kube.errors import NotFound
from proreus.kube.objects import StorageClass
from proreus.kube.requests import STORAGE_CLASSES

PATH: Final = "/persistentvolumeclaim-resize"


def admission(client: Client) -> Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]:
    """Return the webhook's handler, which reads the class of a claim that grows by `client`."""

    async def admit(request: AdmissionRequest) -> AdmissionResponse:
        is_update = (request.operation, request.sub_resource) == ("UPDATE", "")
        is_claim = request.resource.resource == "persistentvolumeclaims"
        old, new = request.old_object, request.object
        if not (is_update and is_claim and old and new and plans.grows(old, new)):
            return AdmissionResponse(allowed=True)
        name = plans.class_to_ask(old, new)
        problem = plans.refusal(old, new, await _class(name) if name else None)
        return AdmissionResponse(allowed=not problem, message=problem)

    async def _class(name: str) -> StorageClass | None:
        try:
            return await client.get(STORAGE_CLASSES, name)
        except NotFound:
            return None

    return admit
