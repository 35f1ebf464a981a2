"""What happens to routes of nodes' pod CIDRs."""

from typing import Final

from proreus.kube.objects import LABEL_EXCLUDE_LB

from ..steps import (  # noqa: TID252 - pytest imports tests by path
    asked,
    delete_node,
    foreign_route,
    has_route,
    initialised,
    is_networked,
    joined,
    machine,
    register,
    remove_route,
    routed_node,
    told,
    unborn,
)
from .script import script

ROUTED: Final = (has_route(), is_networked("False"))

SCRIPTS: Final = (
    script("routed", (routed_node(), ROUTED)),
    script(
        "routed-twice",
        (routed_node(), routed_node("b", 2), has_route(1), has_route(2)),
    ),
    script("routed-dual", (routed_node(dual=True), has_route(), has_route(family=6))),
    script("no-cidr", joined("a"), (asked(2),)),
    script("leaves", (routed_node(), ROUTED), (delete_node(), has_route(not_=True))),
    script(
        "one-leaves",
        (routed_node(), routed_node("b", 2), has_route(1), has_route(2)),
        (delete_node(), has_route(1, not_=True)),
    ),
    script(
        "cidr-moves",
        (routed_node(), ROUTED),
        (
            delete_node(),
            has_route(not_=True),
            register(provider_id="own", cidrs=2),
            has_route(2),
        ),
    ),
    script(
        "in-the-way",
        (machine("b"), foreign_route("b"), routed_node()),
        (told("FailedToCreateRoute", "a"), is_networked("True")),
    ),
    script(
        "out-of-the-way",
        (machine("b"), foreign_route("b"), routed_node()),
        (told("FailedToCreateRoute", "a"), remove_route(), has_route(), is_networked("False")),
    ),
    script("foreign", (machine("b"), foreign_route("b", 7), routed_node(), ROUTED)),
    script(
        "orphan",
        (machine("b"), foreign_route("b", 7, ours=True), routed_node(), ROUTED),
        (has_route(7, not_=True),),
    ),
    script("plugin", (routed_node(network="CiliumIsUp"), has_route())),
    script(
        "plugin-in-the-way",
        (
            machine("b"),
            foreign_route("b"),
            routed_node(network="CiliumIsUp"),
            told("FailedToCreateRoute", "a"),
        ),
    ),
    script(
        "outside",
        (machine(), register(provider_id="own", cidr="10.9.0.0/24"), initialised()),
    ),
    script("no-machine-yet", (unborn(), register(cidrs=1), asked(4))),
)
LASTING: Final = (
    # It must be no host of the load balancers of others.
    script(
        "lost",
        (routed_node(labels={LABEL_EXCLUDE_LB: "true"}), ROUTED),
        (remove_route(), has_route(), is_networked("False")),
    ),
)
