"""A vCenter to test on: govmomi's simulator, and a gateway before it that refuses and fails."""

from labs.vsphere.gateway import Fault, Gateway
from labs.vsphere.program import NoGo, program
from labs.vsphere.simulator import Simulator

__all__ = ["Fault", "Gateway", "NoGo", "Simulator", "program"]
