"""Define the error of this package."""


class ControlPlaneError(Exception):
    """The error that the control plane, or a program of it, could not be had; the text says why."""
