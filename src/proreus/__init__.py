"""Proreus: the Kubernetes cloud-controller-manager in Python.

Rooms, from the top: `app` (the process), `controllers`, `providers` and `testing`,
`cloudprovider` (what a provider author needs), `runtime` (controller machinery) and
`kube` (the API server). ARCHITECTURE.md is the map.
"""

__version__ = "0.1.0"
