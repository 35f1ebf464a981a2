"""Tell for which Services a pool is kept: by their namespace, and by their labels. Pure."""

from collections.abc import Mapping

from proreus.cloudprovider.selectors import NAMESPACE_NAME
from proreus.providers.local.addresses import Pool


def reads_namespaces(pool: Pool) -> bool:
    """Tell whether a pool is kept for namespaces by other labels than their names."""
    return any(one.keys - {NAMESPACE_NAME} for one in pool.namespace_selectors)


def serves_namespace(pool: Pool, name: str, labels: Mapping[str, str] | None) -> bool:
    """Tell whether Services of a namespace may use a pool; by its name if no labels are known."""
    if not pool.namespaces and not pool.namespace_selectors:
        return True
    known = {**(labels or {}), NAMESPACE_NAME: name}
    return name in pool.namespaces or any(one.matches(known) for one in pool.namespace_selectors)


def is_decided(pool: Pool, name: str, labels: Mapping[str, str] | None) -> bool:
    """Tell whether enough is known of a namespace to say if a pool serves it."""
    return labels is not None or name in pool.namespaces or not reads_namespaces(pool)


def selects(pool: Pool, labels: Mapping[str, str]) -> bool:
    """Tell whether a pool is for Services with these labels, wherever they are."""
    selectors = pool.service_selectors
    return not selectors or any(one.matches(labels) for one in selectors)
