"""The states of a watch against a model of the API server's history."""

from hypothesis import given
from hypothesis import strategies as st

from proreus.kube.errors import KubeError, Unreachable
from proreus.kube.objects import ConfigMap, ObjectMeta
from proreus.kube.watch import (
    Applied,
    Deleted,
    Ended,
    Failed,
    Heard,
    Listed,
    Restarted,
    WatchState,
    step,
)

ERROR: KubeError = Unreachable("cut", sent=False)


class Cluster:
    """The history of some objects: one change per version, and from where on it is still known."""

    def __init__(self) -> None:
        self.history: list[tuple[str, str]] = []
        self.compacted = 0

    def change(self, name: str) -> None:
        present = dict(self.present())
        type_ = (
            "DELETED"
            if name in present and len(self.history) % 3 == 0
            else "MODIFIED"
            if name in present
            else "ADDED"
        )
        self.history.append((type_, name))

    def present(self) -> list[tuple[str, int]]:
        found: dict[str, int] = {}
        for index, (type_, name) in enumerate(self.history):
            if type_ == "DELETED":
                found.pop(name, None)
            else:
                found[name] = index + 1
        return list(found.items())

    def listed(self) -> Listed[ConfigMap]:
        items = tuple(obj(name, version) for name, version in self.present())
        return Listed(items, str(len(self.history)))

    def lines(self, version: int) -> list[Heard[ConfigMap]]:
        after = enumerate(self.history[version:], start=version + 1)
        return [Heard(type_, obj(name, index)) for index, (type_, name) in after]


def obj(name: str, version: int) -> ConfigMap:
    return ConfigMap(ObjectMeta(name=name, resource_version=str(version)))


class Follower:
    """What a reader of the events knows."""

    def __init__(self) -> None:
        self.state = WatchState()
        self.objects: dict[str, int] = {}
        self.restarts = 0

    def take(self, signal: Listed[ConfigMap] | Heard[ConfigMap] | Ended | Failed) -> None:
        self.state, event = step(self.state, signal)
        match event:
            case Restarted(items, _):
                self.restarts += 1
                self.objects = {o.metadata.name: int(o.metadata.resource_version) for o in items}
            case Applied(o):
                self.objects[o.metadata.name] = int(o.metadata.resource_version)
            case Deleted(o):
                self.objects.pop(o.metadata.name, None)


def visit(cluster: Cluster, follower: Follower, lines: int | None, *, cut: bool) -> None:
    """One turn of the loop: list if need be, then watch, for some lines (None: all there are)."""
    if not follower.state.version:
        follower.take(cluster.listed())
    version = int(follower.state.version)
    if version < cluster.compacted:
        follower.take(Failed(ERROR, restart=True))
        return
    for line in cluster.lines(version)[:lines]:
        follower.take(line)
    follower.take(Failed(ERROR) if cut else Ended())


actions = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.sampled_from("abc")),
        st.tuples(st.just("visit"), st.none() | st.integers(0, 3), st.booleans()),
        st.just(("compact",)),
        st.just(("unlisted",)),
        st.just(("bookmark",)),
    ),
    max_size=40,
)


@given(actions)
def test_a_follower_ends_with_what_is_there_and_lists_only_when_it_must(
    script: list[tuple[object, ...]],
) -> None:
    cluster, follower, compactions = Cluster(), Follower(), 0
    for action in script:
        match action:
            case ("change", str(name)):
                cluster.change(name)
            case ("visit", None | int() as lines, bool(cut)):
                visit(cluster, follower, lines, cut=cut)
            case ("compact",):
                cluster.compacted = len(cluster.history)
                compactions += 1
            case ("unlisted",):
                follower.take(Failed(ERROR))
            case ("bookmark",):
                # Only a follower that has caught up is told of a newer version.
                if follower.state.version == str(len(cluster.history)):
                    cluster.history.append(("DELETED", "nothing of ours"))
                    follower.take(Heard("BOOKMARK", obj("", len(cluster.history))))

    visit(cluster, follower, None, cut=False)
    visit(cluster, follower, None, cut=False)

    assert follower.objects == dict(cluster.present())
    assert 1 <= follower.restarts <= 1 + compactions


@given(st.lists(st.sampled_from(["list", "line", "end", "cut", "gone"]), max_size=30))
def test_failures_count_since_the_last_line(signals: list[str]) -> None:
    state, failures, lines, version = WatchState(), 0, 0, ""
    made: dict[str, Listed[ConfigMap] | Heard[ConfigMap] | Ended | Failed] = {
        "list": Listed((), "5"),
        "line": Heard("ADDED", obj("a", 6)),
        "end": Ended(),
        "cut": Failed(ERROR),
        "gone": Failed(ERROR, restart=True),
    }
    for signal in signals:
        state, _ = step(state, made[signal])
        if signal == "line":
            failures, lines = 0, lines + 1
        elif signal in ("cut", "gone") or (signal == "end" and not lines):
            failures += 1
        if signal != "line":
            lines = 0

        assert state.failures == failures
        version = {"list": "5", "line": "6", "gone": ""}.get(signal, version)
        assert state.version == version
