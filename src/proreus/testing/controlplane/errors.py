"""The one error of this package."""


class ControlPlaneError(Exception):
    """The control plane, or the programs it is made of, could not be had; the text says why."""
