"""Note on a Service which of several clouds has its load balancer. Pure.

The annotation is for people, and for whoever gives a Service to a cloud by hand. Whoever may edit
the Service can change it, and the finalizer with it. A condition in the status says the same, and
few have the right to write that: so it goes before the annotation.
"""

from datetime import datetime
from enum import StrEnum

from proreus.controllers.service.answers import Change, status_patch
from proreus.controllers.service.intake import (
    ANNOTATION_CLOUD_IN_USE,
    CONDITION_CLOUD,
    Classes,
    cloud_in_status,
    is_moved,
)
from proreus.kube import patch
from proreus.kube.objects import Condition, Service


class Reason(StrEnum):
    """The reasons of the condition `LoadBalancerCloud`: a closed list."""

    RECORDED = "Recorded"
    """The cloud that the message names has the load balancer, or is about to make it."""


def record(service: Service, classes: Classes, now: datetime) -> Change:
    """Return the change that says which of several clouds has the Service, before all others.

    An address that the other cloud gave leaves the status with its name.
    """
    meta, cloud = service.metadata, classes.cloud
    if not cloud or meta.deletion_timestamp is not None:
        return Change()
    ops = patch.annotations(meta.annotations, {ANNOTATION_CLOUD_IN_USE: cloud})
    main = patch.json_patch(meta.uid, ops) or None
    if cloud_in_status(service) == cloud:
        return Change(metadata=main)
    status = status_patch(
        service,
        condition=Condition(CONDITION_CLOUD, "True", Reason.RECORDED, cloud, now),
        ingress=() if is_moved(service, classes) else None,
    )
    return Change(status=status, metadata=main)
