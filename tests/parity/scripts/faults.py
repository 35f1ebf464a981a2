"""What happens when the cloud fails, or there are no nodes: each script alone, for it meets all."""

from typing import Final

from ..steps import (  # noqa: TID252 - pytest imports tests by path
    addressed,
    delete,
    delete_node,
    fails,
    gone,
    has_hosts,
    initialised,
    is_well,
    joined,
    machine,
    noticed,
    register,
    service,
    told,
)
from .script import script

GONE: Final = (delete(), gone(kind="service", here="web"))

SCRIPTS: Final = (
    script(
        "machines-fail",
        (fails("instances.*", count=0), machine(), register(), noticed(), is_well(), initialised()),
    ),
    script(
        "first-step-fails",
        joined("a"),
        (fails("addresses.create"), service(), told("SyncLoadBalancerFailed"), addressed()),
    ),
    script(
        "later-step-fails",
        joined("a"),
        (fails("listeners.create"), service(), told("SyncLoadBalancerFailed"), addressed()),
    ),
    script(
        "half-made-then-deleted",
        joined("a"),
        (fails("load_balancers.create", count=0), service(), told("SyncLoadBalancerFailed")),
        (GONE, is_well()),
    ),
    script(
        "throttled",
        joined("a"),
        (fails("addresses.create", status=429), service(), addressed()),
    ),
    script("no-nodes", (service(), addressed()), (joined("a"), has_hosts("a"))),
    script(
        "all-nodes-go",
        joined("a", "b"),
        (service(), addressed(), has_hosts("a", "b")),
        # Go has one sync for both if they come together.
        (delete_node("a"), has_hosts("b")),
        (delete_node("b"), told("UnAvailableLoadBalancer"), has_hosts()),
    ),
)
