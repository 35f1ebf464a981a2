"""What the API server in memory remembers of the past."""

import pytest

from proreus.kube.requests import NODES, SERVICES
from proreus.testing.memory.store import ApiError, Store

HISTORY = 10


def busy() -> tuple[Store, int]:
    """A store in which nodes changed so often that their past is forgotten; the version before."""
    store = Store(history=HISTORY)
    store.create(SERVICES, "default", {"metadata": {"name": "quiet"}})
    before = store.version
    for number in range(2 * HISTORY):
        store.create(NODES, "", {"metadata": {"name": f"node-{number}"}})
    return store, before


def test_a_busy_resource_forgets_its_own_past_only() -> None:
    store, before = busy()

    with pytest.raises(ApiError) as refused:
        store.changes(NODES, before)
    assert refused.value.code == 410
    assert store.changes(SERVICES, before) == []
    assert [change.last.namespace for change in store.changes(SERVICES, before - 1)] == ["default"]


def test_a_compaction_makes_all_resources_forget() -> None:
    store, before = busy()
    store.forget()

    for resource in (NODES, SERVICES):
        with pytest.raises(ApiError) as refused:
            store.changes(resource, before)
        assert refused.value.code == 410
        assert store.changes(resource, store.version) == []
