"""Tell for which Services a pool is kept: by their namespace, and by their labels. Pure."""

from collections.abc import Mapping

from proreus.cloudprovider import selectors
from proreus.providers.local.addresses import Pool


def reads_namespaces(pool: Pool) -> bool:
    """Tell whether a pool is kept for namespaces by other labels than their names."""
    return any(map(selectors.reads_namespaces, pool.namespace_selectors))


def serves_namespace(pool: Pool, name: str, labels: Mapping[str, str] | None) -> bool:
    """Tell whether Services of a namespace may use a pool; by its name if no labels are known."""
    if not pool.namespaces and not pool.namespace_selectors:
        return True
    return name in pool.namespaces or any(
        selectors.selects_namespace(one, name, labels or {}) for one in pool.namespace_selectors
    )


def is_decided(pool: Pool, name: str, labels: Mapping[str, str] | None) -> bool:
    """Tell whether enough is known of a namespace to say if a pool serves it."""
    return labels is not None or name in pool.namespaces or not reads_namespaces(pool)


def selects(pool: Pool, labels: Mapping[str, str]) -> bool:
    """Tell whether a pool is for Services with these labels, wherever they are."""
    chosen = pool.service_selectors
    return not chosen or any(one.matches(labels) for one in chosen)
