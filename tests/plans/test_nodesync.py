from proreus.controllers.service.nodesync import NodeSyncs


def test_a_sync_ends_with_the_last_service_and_counts_from_the_first_change() -> None:
    syncs = NodeSyncs()
    syncs.begin(["a", "b"], 10.0)
    assert not syncs.done("a")
    syncs.begin(["c"], 20.0)
    assert not syncs.done("b", failed=True)
    assert syncs.done("c")
    assert (syncs.started, syncs.failed) == (10.0, True)


def test_the_next_sync_starts_anew() -> None:
    syncs = NodeSyncs()
    syncs.begin(["a"], 10.0)
    assert syncs.done("a", failed=True)
    syncs.begin(["a"], 30.0)
    assert syncs.done("a")
    assert (syncs.started, syncs.failed) == (30.0, False)


def test_services_that_do_not_wait_and_changes_without_services_end_nothing() -> None:
    syncs = NodeSyncs()
    syncs.begin([], 10.0)
    assert not syncs.done("a")
    syncs.begin(["b"], 20.0)
    assert not syncs.done("a")
    assert syncs.done("b")
    assert syncs.started == 20.0
