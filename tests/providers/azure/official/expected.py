"""The differences that are meant, each with its row on the page of differences."""

from typing import Final

from ....parity.compare import Meant  # noqa: TID252 - pytest imports tests by path

STATE: Final = "state"
MARKS: Final = "marks on Azure's public IPs and load balancers"
PRIORITY: Final = "the priority of a new rule in Azure's security group"
LEFT: Final = "rules of Azure's security group for addresses that a Service has no more"
LATE: Final = "a Service with a wrong annotation of Azure"
RULES: Final = "networkSecurityGroups nsg/securityRules *"
EDITED: Final = ("node ports: *", "named address: *", "given address: *", "kinds: *")

MEANT: Final = (
    Meant(STATE, ("*",), "service */condition LoadBalancerReady", None, "*"),
    Meant(MARKS, ("*",), "publicIPAddresses */tag proreus_*", None, "*"),
    Meant(MARKS, ("*",), "loadBalancers */tag proreus_*", None, "*"),
    Meant(PRIORITY, ("*",), f"{RULES}/priority", "50*", "50*"),
    Meant(LEFT, EDITED, RULES, "*", None),
    Meant(LEFT, EDITED, f"{RULES}/destinationAddressPrefix", None, "*"),
    Meant(LATE, ("wrong timeout: made",), "publicIPAddresses *", "*", None),
    Meant(LATE, ("wrong timeout: made",), "service web/finalizer *", "there", None),
)
