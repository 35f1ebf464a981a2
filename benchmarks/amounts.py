"""How much work the scenarios give: all of it, or little for a quick look."""

from collections.abc import Sequence

import msgspec

from benchmarks.contestants import CONTESTANTS, GO_TUNED, PROREUS, Contestant


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of work.

    Attributes:
        nodes: How many are initialised at once, in each scenario.
        throttled_nodes: How many are where the cloud has a quota.
        steady_seconds: How long a steady state is watched.
        services: How many are ensured, edited and deleted, in each scenario.
        hosts: Nodes behind load balancers.
        joining: How many nodes join and leave, in each scenario.
        join_services: Load balancers that they join.
        routes: Nodes that need a route.
        limit_nodes: How many are initialised beside a bare loop.
        kubelets: How many register and heartbeat while their nodes are initialised.
        signals: What ends a leader.
        contestants: Who does the work.
    """

    nodes: Sequence[int]
    throttled_nodes: int
    steady_seconds: float
    services: Sequence[int]
    hosts: int
    joining: Sequence[int]
    join_services: int
    routes: int
    limit_nodes: int
    kubelets: int
    signals: Sequence[str] = ("SIGTERM", "SIGKILL")
    contestants: Sequence[Contestant] = CONTESTANTS


FULL = Scale(
    nodes=(1000, 5000),
    throttled_nodes=1000,
    steady_seconds=300.0,
    services=(200, 1000),
    hosts=100,
    joining=(50, 500),
    join_services=200,
    routes=1000,
    limit_nodes=5000,
    kubelets=1000,
)
QUICK = Scale(
    nodes=(100,),
    throttled_nodes=50,
    steady_seconds=8.0,
    services=(20,),
    hosts=10,
    joining=(10,),
    join_services=10,
    routes=50,
    limit_nodes=300,
    kubelets=50,
    signals=("SIGTERM",),
    contestants=(GO_TUNED, PROREUS),  # Go with its default flags takes minutes for some
)
