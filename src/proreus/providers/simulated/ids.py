"""Convert provider ids of the simulated cloud: `simulated://<region>/<instance id>`."""

OFFICIAL_CLUSTER = "kubernetes.io/cluster/"
"""Prefix of the official manager's tag on what it makes; the name of the cluster follows."""
OFFICIAL_SERVICE = "kubernetes.io/service-name"
"""The official manager's tag that names the Service, as namespace/name."""
PREFIX = "simulated://"


def provider_id(region: str, id_: str) -> str:
    """Return the provider id of an instance."""
    return f"{PREFIX}{region}/{id_}"


def instance_id(region: str, provider_id_: str) -> str | None:
    """Return the instance in a provider id, or None if it is another cloud's or region's."""
    mine = provider_id(region, "")
    return provider_id_.removeprefix(mine) or None if provider_id_.startswith(mine) else None
