"""Decide to which of several clouds a node or a Service belongs. Pure.

The label `proreus.io/cloud` decides, unless the cloud that it names says by the provider id that
the node is not its own; then, or without it, the provider id does where exactly one cloud owns it.
Without either, all clouds that may have its machine are asked, and exactly one must have it.
What two clouds claim, or nobody, no cloud's controllers see.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.controllers.service.intake import (
    ANNOTATION_CLOUD_IN_USE,
    TYPE_LOAD_BALANCER,
    cloud_in_status,
    has_finalizer,
)
from proreus.kube.objects import Node, Service

LABEL_CLOUD: Final = "proreus.io/cloud"
"""The label of a Node that names its cloud; set by its cloud's controllers where it is missing."""

ANNOTATION_CLOUD: Final = "proreus.io/cloud"
"""The annotation of a Service that names the cloud which is to make its load balancer."""

Votes = Mapping[str, Ownership | None]
"""What each cloud says of a node without asking; None: it has not started, so nobody knows."""


class Decided(msgspec.Struct, frozen=True):
    """The node belongs to that cloud; it may be deleted only if that is `sure`."""

    cloud: str
    sure: bool


class Undecided(msgspec.Struct, frozen=True):
    """Any of these clouds may have the node's machine: each has to be asked."""

    clouds: tuple[str, ...]


class Contested(msgspec.Struct, frozen=True):
    """The node must be left alone until somebody has settled what the text says."""

    text: str


class Foreign(msgspec.Struct, frozen=True):
    """The node belongs to none of the clouds."""


Belonging = Decided | Undecided | Contested | Foreign


def belonging(node: Node, votes: Votes) -> Belonging:
    """Decide to which cloud a node belongs.

    The label decides unless the cloud that it names says that the node is not its own: one that has
    not started, or cannot tell, may have the machine, whoever else has ids of that form. Nor is it
    sure without the label that the only owner is the right one then, and nothing can delete the
    node.
    """
    label = node.metadata.labels.get(LABEL_CLOUD, "")
    if votes.get(label, Ownership.NO) is not Ownership.NO:
        return Decided(label, sure=True)
    owners = [cloud for cloud, vote in votes.items() if vote is Ownership.YES]
    if len(owners) == 1:
        is_sure = {None, Ownership.UNKNOWN}.isdisjoint(votes.values())
        return Decided(owners[0], is_sure)
    possible = owners or [cloud for cloud, vote in votes.items() if vote is not Ownership.NO]
    if label and label not in votes:
        known = ", ".join(votes)
        return Contested(f"the label {LABEL_CLOUD} names {label!r}, but the clouds are {known}")
    if owners:
        return Contested(
            f"the clouds {' and '.join(owners)} both own the provider id "
            f"{node.spec.provider_id}: set the label {LABEL_CLOUD} of the node to the right one"
        )
    if len(possible) == 1:
        return Decided(possible[0], sure=True)
    return Undecided(tuple(possible)) if possible else Foreign()


def found_by(
    answers: Mapping[str, InstanceAnswer], uuids: Collection[str] = ()
) -> str | NotFound | CloudError:
    """Return the one cloud that has the machine of an undecided node; else the error.

    Where two clouds are parts of one, such as two searches in one oVirt, the other one tells that
    the machine is not where it looks: it counts for nothing if its id is one of the UUIDs.

    Args:
        answers: The answer of each cloud that may have the machine; an error where a cloud gave
            none.
        uuids: The UUID of its machine that the node's kubelet reports, in both byte orders.
    """
    found = [cloud for cloud, answer in answers.items() if isinstance(answer, Instance)]
    failed = {cloud: one for cloud, one in answers.items() if isinstance(one, CloudError)}
    decide = f"set the label {LABEL_CLOUD} of the node, or start the kubelet with --provider-id"
    if len(found) > 1:
        text = f"the clouds {' and '.join(found)} both have a machine for it; {decide}"
        return IdentityConflict(text)
    if len(found) == 1 and _is_named_by(answers[found[0]], uuids):
        failed = {one: e for one, e in failed.items() if not isinstance(e, IdentityConflict)}
    if failed:
        cloud, error = next(iter(failed.items()))
        if isinstance(error, IdentityConflict):
            return IdentityConflict(f"the cloud {cloud} says: {error}")
        others = f"the cloud {found[0]} has a machine for it, but " if found else ""
        more = f", nor do {len(failed) - 1} others" if failed.keys() - {cloud} else ""
        return CloudError(
            f"{others}the cloud {cloud} does not say whether it has one{more}; "
            f"to wait for no other cloud, {decide}: {error}"
        )
    return found[0] if found else NotFound()


def _is_named_by(answer: InstanceAnswer, uuids: Collection[str]) -> bool:
    ends = tuple(f"/{uuid}" for uuid in uuids)
    return isinstance(answer, Instance) and answer.provider_id.lower().endswith(ends)


def heard(
    node: Node, answer: InstanceAnswer, names: Collection[str], others: Collection[str] = ()
) -> InstanceAnswer:
    """Return the answer of a node's cloud; if a label names another one, only a machine that runs.

    A cloud that was taken out of the flags, for a repair for instance, may have ids of the same
    form as one that is left, which knows nothing of its machines, or has a replica of one that is
    off. So may one whose cloud-config says by now that the node is not its own, or that it has no
    machines at all. A machine that is found and runs loses that label, if a manager has set it.

    Args:
        node: The node.
        answer: The answer of the only cloud that was asked.
        names: The names of that cloud.
        others: The names of this manager's other clouds.
    """
    label = node.metadata.labels.get(LABEL_CLOUD, "")
    runs = isinstance(answer, Instance) and answer.state is InstanceState.RUNNING
    if isinstance(answer, CloudError) or runs or not label or label in names:
        return answer
    said = "there is no such machine" if isinstance(answer, NotFound) else "no such machine runs"
    if label in others:
        why = "whose cloud-config makes the node none of its own: correct that"
    else:
        why = "which this manager does not have: add that cloud to --cloud-provider"
    return IdentityConflict(
        f"{said} in {' or '.join(names)}, but the label {LABEL_CLOUD} names {label!r}, "
        f"{why}; or, if the machine is gone, remove the label"
    )


def is_about_belonging(message: str) -> bool:
    """Tell whether a message says that a node's cloud is not known: no single cloud is to blame.

    Each text above names the label that settles it, and so does the condition of the Node, which is
    all that other processes see.
    """
    return LABEL_CLOUD in message


Labels = Mapping[str, str]


def labels_of_all(
    answers: Iterable[Mapping[str, Labels | CloudError]],
) -> Mapping[str, Labels | CloudError]:
    """Return what all clouds together say of volumes, by name: the labels of the one that knows it.

    An error of a cloud counts only where no cloud has labels for the volume.
    """
    found: dict[str, Labels | CloudError] = {}
    for answer in answers:
        for name, labels in answer.items():
            known = found.get(name, {})
            is_better = isinstance(known, CloudError) and not isinstance(labels, CloudError)
            if not known or (is_better and labels):
                found[name] = labels
    return found


class Rules(msgspec.Struct, frozen=True):
    """Which cloud makes load balancers for which Services.

    Attributes:
        clouds: The names of all clouds.
        default: The cloud of Services that name none.
        classes: The cloud of each `spec.loadBalancerClass` that is ours.
        classless: Whether Services without a class get load balancers from these clouds.
        lacking: The clouds that turned out to lack the capability `LoadBalancers`.
    """

    clouds: Collection[str]
    default: str
    classes: Mapping[str, str] = {}
    classless: bool = True
    lacking: Collection[str] = ()

    def can_have(self, cloud: str | None) -> bool:
        """Tell whether a cloud is there, and does not lack the capability `LoadBalancers`."""
        return cloud in self.clouds and cloud not in self.lacking


class Placed(msgspec.Struct, frozen=True):
    """The Service is the business of that cloud; one that `leaves` it loses its load balancer."""

    cloud: str
    leaves: bool = False


class Misplaced(msgspec.Struct, frozen=True):
    """No cloud can be chosen, as the text says."""

    text: str


def recorded(service: Service) -> str:
    """Return the cloud that has the Service's load balancer, or "".

    The status says so; that of a former version does not, and then finalizer and annotation do.
    """
    annotation = service.metadata.annotations.get(ANNOTATION_CLOUD_IN_USE, "")
    return cloud_in_status(service) or (annotation if has_finalizer(service) else "")


def is_let_go(service: Service) -> bool:
    """Tell whether the Service wants no load balancer, and no cloud has one for it."""
    return service.spec.type != TYPE_LOAD_BALANCER and not has_finalizer(service)


def place(service: Service, rules: Rules, former: str = "") -> Placed | Misplaced | None:
    """Decide which cloud has a Service now; None if it is none of ours.

    The cloud that has made the load balancer, as the finalizer and the annotation
    `proreus.io/cloud-in-use` say, has the Service until it has deleted that. Only then may
    another one begin.

    Args:
        service: The Service.
        rules: Which cloud makes load balancers for which Services.
        former: The last cloud that was `recorded` on it by a manager, which counts where a tool
            that replaces the Service by its own file has taken finalizer and annotation away, or
            has written another cloud's name; "" for none.
    """
    former = former if rules.can_have(former) else ""
    holder = _holder(service, rules, former)
    if holder and not rules.can_have(holder):
        return Misplaced(
            f"its load balancer is in the cloud {holder}, which this manager does not have: add it "
            f"to --cloud-provider; or delete it there, then the annotation "
            f"{ANNOTATION_CLOUD_IN_USE}"
        )
    desired = _desired(service, rules, holder, former)
    if desired is None:
        return Placed(holder) if holder and (former or _is_recorded(service)) else None
    first = _checked(desired, rules)
    if not holder or holder == desired:
        # Without the finalizer, too, what is named by mistake must not take away what works.
        return Placed(former) if former and isinstance(first, Misplaced) else first
    return Placed(holder, leaves=isinstance(first, Placed))


def _checked(desired: str, rules: Rules) -> Placed | Misplaced:
    if desired not in rules.clouds:
        known = ", ".join(rules.clouds)
        text = f"the annotation {ANNOTATION_CLOUD} names {desired!r}, but the clouds are {known}"
        return Misplaced(text)
    if desired in rules.lacking:
        return Misplaced(
            f"the cloud {desired} has no load balancers: choose another by the annotation "
            f"{ANNOTATION_CLOUD}, or for all Services by --load-balancer-cloud"
        )
    return Placed(desired)


def _holder(service: Service, rules: Rules, former: str) -> str:
    """Return the cloud that may have made something for the Service; "" if none may have.

    A load balancer without the record was made before there were several clouds.
    """
    if not has_finalizer(service):
        return ""
    if _is_recorded(service):
        return former or service.metadata.annotations[ANNOTATION_CLOUD_IN_USE]
    made_in = rules.classes.get(service.spec.load_balancer_class or "", former or rules.default)
    return "" if made_in in rules.lacking else made_in


def _is_recorded(service: Service) -> bool:
    return ANNOTATION_CLOUD_IN_USE in service.metadata.annotations


def _desired(service: Service, rules: Rules, holder: str, former: str) -> str | None:
    """Return the cloud that the Service asks for; None if it asks for none of ours."""
    if service.spec.type != TYPE_LOAD_BALANCER:
        return holder or None
    class_ = service.spec.load_balancer_class
    if class_ is not None:
        return rules.classes.get(class_)
    if not rules.classless:
        return None
    wanted = service.metadata.annotations.get(ANNOTATION_CLOUD, "")
    return wanted or (holder if _is_recorded(service) else "") or former or rules.default
