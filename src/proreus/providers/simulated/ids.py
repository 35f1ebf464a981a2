"""Provider ids of the simulated cloud: `simulated://<region>/<instance id>`."""

OFFICIAL_CLUSTER = "kubernetes.io/cluster/"
"""Prefix of the official manager's tag on what it makes; the name of the cluster follows."""
OFFICIAL_SERVICE = "kubernetes.io/service-name"
"""The official manager's tag that names the Service, as namespace/name."""
PREFIX = "simulated://"


def provider_id(region: str, id_: str) -> str:
    """The provider id of an instance."""
    return f"{PREFIX}{region}/{id_}"


def instance_id(region: str, provider_id_: str) -> str | None:
    """The instance that a provider id names, or None if it names none of this cloud and region."""
    mine = provider_id(region, "")
    return provider_id_.removeprefix(mine) or None if provider_id_.startswith(mine) else None
