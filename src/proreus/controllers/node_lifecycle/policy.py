"""Define when a silent node is given up, and how quickly pods leave: the numbers of the rules."""

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers, whose defaults are kube-controller-manager's; durations in seconds.

    Attributes:
        period: How often nodes are looked at.
        grace: How long a node may be silent.
        startup_grace: How long a node may be silent that has never reported.
        courtesy: The additional time for which nothing is done, so that another controller of this
            kind can show itself.
        rate: How many nodes of a zone are tainted in a second.
        reduced_rate: The rate in a large zone that is partly disrupted; in a small one it is 0.
        large: The number of nodes above which a zone is large.
        threshold: The share of nodes not Ready from which a zone is partly disrupted.
    """

    period: float = 5.0
    grace: float = 50.0
    startup_grace: float = 60.0
    courtesy: float = 10.0
    rate: float = 0.1
    reduced_rate: float = 0.01
    large: int = 50
    threshold: float = 0.55
