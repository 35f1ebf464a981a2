"""Make the steps that change a load balancer: call, effect and preview of each. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.baidu.api import Call
from proreus.providers.baidu.balancing.annotations import PREPAID, Bandwidth
from proreus.providers.baidu.balancing.owners import write_mark
from proreus.providers.baidu.balancing.parts import (
    AVAILABLE,
    BOUND,
    NEW,
    Balancer,
    Desired,
    Eip,
    Listener,
    Mark,
    Observed,
)


class Wait(msgspec.Struct, frozen=True):
    """The step that calls nothing: the cloud still works on something."""

    reason: str


Step = PlannedCall[Call | Wait, Observed]

WEIGHT: Final = 100
"""The weight of a back end, as with the official manager."""
_UNKNOWN: Final = "0.0.0.0"  # noqa: S104 - an address that stands for one not known yet


def wait(reason: str) -> Step:
    """Return the step to wait until the cloud has done what it works on."""
    return PlannedCall(Wait(reason), _settled)


def _settled(before: Observed) -> Observed:
    def balancer(one: Balancer) -> Balancer:
        return replace(one, status=AVAILABLE)

    return Observed(
        before.balancer and balancer(before.balancer),
        tuple(map(balancer, before.spare)),
        tuple(replace(one, status=BOUND if one.holder else AVAILABLE) for one in before.eips),
    )


def create_balancer(desired: Desired, mark: Mark) -> Step:
    """Return the step to make the load balancer, with its mark from the start."""
    body = {
        "name": desired.name,
        "desc": write_mark(mark),
        "vpcId": desired.vpc,
        "subnetId": desired.subnet,
        **({"allocateVip": True} if desired.vip else {}),
    }
    new = Balancer(NEW, desired.name, vpc=desired.vpc, mark=mark)
    return PlannedCall(
        Call("createLoadBalancer", body=body),
        lambda before: replace(before, balancer=new),
        (PartChange("create", new.title, f"subnet {desired.subnet}"),),
    )


def renaming(balancer: Balancer, name: str, mark: Mark) -> Call:
    """Return the call that gives a load balancer a name and a description."""
    body = {"name": name, "desc": write_mark(mark)}
    return Call("updateLoadBalancer", (balancer.id,), body=body)


def update_balancer(balancer: Balancer, name: str, mark: Mark) -> Step:
    """Return the step to give a load balancer another name or description."""
    detail = f"name {name}" if name != balancer.name else "our mark"
    return PlannedCall(
        renaming(balancer, name, mark),
        _on(balancer, lambda one: replace(one, name=name, mark=mark)),
        (PartChange("change", balancer.title, detail),),
    )


def leave_balancer(balancer: Balancer) -> Step:
    """Return the step to remove our mark from a load balancer that is not ours to delete."""
    return PlannedCall(
        renaming(balancer, balancer.name, Mark(balancer.mark.text)),
        lambda before: _without(before, balancer.id),
        (PartChange("change", balancer.title, "without our mark: it stays"),),
    )


def delete_balancer(balancer: Balancer) -> Step:
    """Return the step to delete a load balancer."""
    return PlannedCall(
        Call("deleteLoadBalancer", (balancer.id,)),
        lambda before: _without(before, balancer.id),
        (PartChange("delete", balancer.title),),
    )


def create_listener(balancer: Balancer, desired: Listener) -> Step:
    """Return the step to make a listener."""
    body = {"listenerPort": desired.port, **_body(desired)}
    return PlannedCall(
        Call(f"create{desired.protocol}Listener", (balancer.id,), body=body),
        _on(balancer, lambda one: replace(one, listeners=(*one.listeners, desired))),
        (PartChange("create", desired.title, _text(desired)),),
    )


def update_listener(balancer: Balancer, desired: Listener) -> Step:
    """Return the step to change a listener."""
    query = {"listenerPort": str(desired.port)}
    return PlannedCall(
        Call(f"update{desired.protocol}Listener", (balancer.id,), query, _body(desired)),
        _on(
            balancer,
            lambda one: replace(
                one,
                listeners=tuple(
                    desired if other.key == desired.key else other for other in one.listeners
                ),
            ),
        ),
        (PartChange("change", desired.title, _text(desired)),),
    )


def delete_listeners(balancer: Balancer, gone: Iterable[Listener]) -> Step:
    """Return the step to delete listeners, all in one call."""
    gone = tuple(gone)
    keys = {one.key for one in gone}
    ports = [{"port": one.port, "type": one.protocol} for one in gone]
    return PlannedCall(
        Call("deleteListeners", (balancer.id,), body={"portTypeList": ports}),
        _on(
            balancer,
            lambda one: replace(
                one, listeners=tuple(other for other in one.listeners if other.key not in keys)
            ),
        ),
        tuple(PartChange("delete", one.title) for one in gone),
    )


def add_members(balancer: Balancer, ids: Iterable[str]) -> Step:
    """Return the step to add back ends, all in one call."""
    new = sorted(ids)
    servers = [{"instanceId": id_, "weight": WEIGHT} for id_ in new]
    return PlannedCall(
        Call("addBackendServers", (balancer.id,), body={"backendServerList": servers}),
        _on(balancer, lambda one: replace(one, members=one.members | set(new))),
        tuple(PartChange("create", f"back end {id_}", balancer.title) for id_ in new),
    )


def remove_members(balancer: Balancer, ids: Iterable[str]) -> Step:
    """Return the step to remove back ends, all in one call."""
    gone = sorted(ids)
    return PlannedCall(
        Call("removeBackendServers", (balancer.id,), body={"backendServerList": gone}),
        _on(balancer, lambda one: replace(one, members=one.members - set(gone))),
        tuple(PartChange("delete", f"back end {id_}", balancer.title) for id_ in gone),
    )


def create_eip(desired: Desired, name: str) -> Step:
    """Return the step to buy a public address, with its tags from the start."""
    eip = desired.eip
    body = {
        "name": name,
        "bandwidthInMbps": eip.megabits,
        "billing": _billing(eip),
        "tags": [{"tagKey": key, "tagValue": one} for key, one in sorted(desired.tags.items())],
    }
    new = Eip(
        _UNKNOWN,
        megabits=eip.megabits,
        payment=eip.payment,
        billing=eip.billing,
        is_ours=True,
        is_tagged=True,
    )
    detail = f"{eip.megabits} Mbps, {eip.payment} {eip.billing}".strip()
    return PlannedCall(
        Call("createEip", body=body),
        lambda before: replace(before, eips=(*before.eips, new)),
        (PartChange("create", "public address", detail),),
    )


def bind_eip(eip: Eip, balancer: Balancer) -> Step:
    """Return the step to bind a public address to the load balancer."""
    body = {"instanceType": "BLB", "instanceId": balancer.id}
    return PlannedCall(
        Call("bindEip", (eip.ip,), body=body),
        _of(eip, lambda one: replace(one, holder=balancer.id, status=BOUND)),
        (PartChange("change", _title(eip), f"bound to {balancer.title}"),),
    )


def unbind_eip(eip: Eip) -> Step:
    """Return the step to unbind a public address."""
    return PlannedCall(
        Call("unbindEip", (eip.ip,)),
        _of(eip, lambda one: replace(one, holder="", status=AVAILABLE)),
        (PartChange("change", _title(eip), "unbound"),),
    )


def resize_eip(eip: Eip, megabits: int) -> Step:
    """Return the step to give a public address another bandwidth."""
    return PlannedCall(
        Call("resizeEip", (eip.ip,), body={"newBandwidthInMbps": megabits}),
        _of(eip, lambda one: replace(one, megabits=megabits)),
        (PartChange("change", _title(eip), f"{megabits} Mbps"),),
    )


def release_eip(eip: Eip) -> Step:
    """Return the step to release a public address."""
    return PlannedCall(
        Call("releaseEip", (eip.ip,)),
        lambda before: replace(before, eips=tuple(one for one in before.eips if one.ip != eip.ip)),
        (PartChange("delete", _title(eip)),),
    )


def _billing(eip: Bandwidth) -> dict[str, Any]:
    if eip.payment != PREPAID:
        return {"paymentTiming": eip.payment, "billingMethod": eip.billing}
    reservation = {"reservationLength": eip.months, "reservationTimeUnit": "Month"}
    return {"paymentTiming": eip.payment, "reservation": reservation}


def _body(listener: Listener) -> dict[str, Any]:
    return {
        "backendPort": listener.node_port,
        "scheduler": listener.scheduler,
        **listener.settings,
    }


def _text(listener: Listener) -> str:
    differing: Mapping[str, Any] = listener.settings
    shown = ", ".join(f"{key}={value}" for key, value in sorted(differing.items()))
    return f"to {listener.node_port}, {listener.scheduler}, {shown}"


def _title(eip: Eip) -> str:
    return "public address (new)" if eip.ip == _UNKNOWN else eip.title


def _on(
    balancer: Balancer, change: Callable[[Balancer], Balancer]
) -> Callable[[Observed], Observed]:
    def after(before: Observed) -> Observed:
        def changed(one: Balancer) -> Balancer:
            return change(one) if one.id == balancer.id else one

        return replace(
            before,
            balancer=before.balancer and changed(before.balancer),
            spare=tuple(map(changed, before.spare)),
        )

    return after


def _of(eip: Eip, change: Callable[[Eip], Eip]) -> Callable[[Observed], Observed]:
    return lambda before: replace(
        before, eips=tuple(change(one) if one.ip == eip.ip else one for one in before.eips)
    )


def _without(before: Observed, id_: str) -> Observed:
    kept = before.balancer
    return replace(
        before,
        balancer=None if kept is not None and kept.id == id_ else kept,
        spare=tuple(one for one in before.spare if one.id != id_),
    )
