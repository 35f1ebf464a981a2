"""What happens to the hosts of load balancers when nodes come, change and go.

Stages: nodes, then Services, then what happens to the nodes, then one more node for all. Each
script has a node that stays, or its Service would have to say that it has none.
"""

from typing import Final

from proreus.kube.objects import LABEL_EXCLUDE_LB, TAINT_AUTOSCALER
from proreus.testing.simulated import Address

from ..steps import (  # noqa: TID252 - pytest imports tests by path
    addressed,
    born,
    change,
    delete_node,
    edit_node,
    end,
    fails,
    has_address,
    has_hosts,
    joined,
    machine,
    noticed,
    register,
    says,
    service,
    taint,
    told,
    unborn,
)
from .script import script

TWO: Final = joined("a", "b")
WEB: Final = (service(), addressed(), has_hosts("a", "b"))
ONE_MORE: Final = (joined("c"), has_hosts("a", "b", "c"))
ONE_LESS: Final = (joined("c"), has_hosts("b", "c"))
HOLD: Final = edit_node(metadata={"finalizers": ["example.com/hold"]})


def excluded(value: str | None) -> object:
    """Set the label that keeps a node out of load balancers."""
    return edit_node(metadata={"labels": {LABEL_EXCLUDE_LB: value}})


SCRIPTS: Final = (
    script("joins", TWO, WEB, (), ONE_MORE),
    script("goes", TWO, WEB, (delete_node(), has_hosts("b")), ONE_LESS),
    script("excluded", TWO, WEB, (excluded(""), has_hosts("b")), ONE_LESS),
    script("excluded-true", TWO, WEB, (excluded("true"), has_hosts("b")), ONE_LESS),
    script("excluded-false", TWO, WEB, (excluded("false"),), ONE_MORE),
    script("excluded-odd", TWO, WEB, (excluded("maybe"), has_hosts("b")), ONE_LESS),
    script(
        "excluded-for-a-while",
        TWO,
        WEB,
        (excluded("true"), has_hosts("b"), excluded(None), has_hosts("a", "b")),
        ONE_MORE,
    ),
    script(
        "excluded-before",
        (machine("a"), register(labels={LABEL_EXCLUDE_LB: "true"}), joined("b")),
        (service(), addressed(), has_hosts("b")),
        (),
        ONE_LESS,
    ),
    script("cordoned", TWO, WEB, (edit_node(spec={"unschedulable": True}),), ONE_MORE),
    script("silent", TWO, WEB, (says("Ready", "Unknown"),), ONE_MORE),
    script("autoscaled", TWO, WEB, (taint(TAINT_AUTOSCALER),), ONE_LESS),
    script("going", TWO, WEB, (HOLD, delete_node()), ONE_LESS),
    script("labelled-node", TWO, WEB, (edit_node(metadata={"labels": {"team": "red"}}),), ONE_MORE),
    script("other-taint", TWO, WEB, (taint("team", value="red"),), ONE_MORE),
    script(
        "initialised-late",
        (unborn("a"), register(), noticed(), joined("b")),
        (service(), addressed(), has_hosts("b")),
        (born("a"), has_hosts("a", "b")),
        ONE_MORE,
    ),
    script(
        "never-initialised",
        (unborn("a"), register(), joined("b")),
        (service(), addressed(), has_hosts("b")),
        (),
        ONE_LESS,
    ),
    script(
        "of-another-cloud",
        (
            machine("a"),
            register(tainted=False, provider_id="simulated://sim-2/i-000000000000"),
            joined("b"),
        ),
        (service(), addressed(), has_hosts("b")),
        (),
        ONE_LESS,
    ),
    script(
        "moves",
        TWO,
        WEB,
        (change(addresses=[Address("InternalIP", "192.0.2.77")]), has_address("192.0.2.77")),
        ONE_MORE,
    ),
    script(
        "update-fails",
        TWO,
        WEB,
        (),
        (
            fails("load_balancers.add_targets", part="load_balancer"),
            joined("c"),
            told("UpdateLoadBalancerFailed"),
            has_hosts("a", "b", "c"),
        ),
    ),
    script(
        "another-host",
        TWO,
        WEB,
        (delete_node(), has_hosts("b"), end()),
        ONE_LESS,
    ),
)
