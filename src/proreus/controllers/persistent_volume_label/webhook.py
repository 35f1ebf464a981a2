"""Label PersistentVolumes when they are made: the webhook `persistentvolume-label`."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from proreus.cloudprovider import AdmissionRequest, AdmissionResponse, CloudError
from proreus.controllers.persistent_volume_label import plan as plans
from proreus.kube.objects import PersistentVolume
from proreus.runtime import klog

log = klog.logger(__name__)

PATH: Final = "/persistentvolume-label"

ALLOWED: Final = AdmissionResponse(allowed=True)

Ask = Callable[[PersistentVolume], Awaitable[plans.Answer]]


def admission(ask: Ask) -> Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]:
    """Return the webhook's handler, which asks the cloud by `ask`."""

    async def admit(request: AdmissionRequest) -> AdmissionResponse:
        is_new = (request.operation, request.sub_resource) == ("CREATE", "")
        if not is_new or request.resource.resource != "persistentvolumes" or not request.object:
            return ALLOWED
        volume = msgspec.convert(request.object, PersistentVolume)
        answer: plans.Answer | None = plans.known(volume)
        if answer is None:
            # A volume may have no name yet, and two of one name may be asked about at once.
            meta = msgspec.structs.replace(volume.metadata, name=request.uid)
            answer = await ask(msgspec.structs.replace(volume, metadata=meta))
        if isinstance(answer, CloudError):
            message, code = plans.refusal(answer)
            klog.warning(log, "Refused a volume", persistentvolume=request.name, err=answer)
            return AdmissionResponse(allowed=False, message=message, code=code)
        try:
            place = plans.desired(volume, answer)
        except ValueError as exc:
            message = f"the volume cannot be labelled: {exc}"
            return AdmissionResponse(allowed=False, message=message)
        return AdmissionResponse(allowed=True, patch=plans.admitted(volume, place))

    return admit
