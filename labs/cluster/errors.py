"""The one error of this package."""

from proreus.testing.controlplane import ControlPlaneError


class ClusterError(ControlPlaneError):
    """The cluster, or what it is made of, could not be had; the text says why."""
