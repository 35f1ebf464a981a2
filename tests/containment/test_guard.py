"""What the guard makes of each deed of a bad provider, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from proreus.cloudprovider import (
    CallTimeout,
    CloudError,
    CloudProvider,
    ClusterIdentity,
    Context,
    Done,
    Endpoints,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    InstanceAnswer,
    InvalidRequest,
    LoadBalancer,
    LoadBalancers,
    NotFound,
    Ownership,
    Route,
    confirmed_by,
    per_service,
    scope,
    scope_of,
)
from proreus.cloudprovider.desired import desired_load_balancer, load_balancer_ref
from proreus.containment.faults import EVENT, Fault, Faults, Kind
from proreus.containment.guard import VERB_SECONDS, Guard
from proreus.containment.guarded import guarded
from proreus.kube.objects import (
    KubeObject,
    Node,
)
from proreus.runtime import metrics
from proreus.runtime.tasks import Exited, contain_exits
from proreus.testing.clock import virtual_time
from proreus.testing.objects import node, service

from ..faults.bad_provider import (  # noqa: TID252 - pytest imports tests by path
    MANY_THREADS,
    BadProvider,
    Config,
    end_threads,
)

CLUSTER = ClusterIdentity("test", "uid-of-kube-system")


class Events:
    """Keeps events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        self.seen.append((obj.metadata.name, reason))


class Site:
    """A bad provider behind the guard; its faults are counted under a name of its own."""

    def __init__(self, *deeds: str) -> None:
        self.name = f"bad-{uuid4()}"
        self.events = Events()
        self.context = Context(
            CLUSTER, now=lambda: datetime.now(UTC), events=self.events, listers={}
        )
        self.guard = Guard(Faults(self.name, self.events), self.context.outlasts)
        self.bad = BadProvider(Config(deeds=deeds))

    async def start(self) -> CloudProvider:
        await self.bad.start(self.context)
        return guarded(self.bad, self.guard)

    async def load_balancers(self) -> LoadBalancers:
        found = (await self.start()).load_balancers
        assert found is not None
        return found

    def faults(self) -> Counter[tuple[str, str]]:
        """How many there were, by verb and kind."""
        return Counter(
            {
                (sample.labels["verb"], sample.labels["kind"]): int(sample.value)
                for family in metrics.REGISTRY.collect()
                for sample in family.samples
                if sample.name == "proreus_provider_faults_total"
                and sample.labels["provider"] == self.name
            }
        )


def desired(cloud: LoadBalancers, name: str) -> LoadBalancer:
    one = service(name)
    return desired_load_balancer(one, [], cloud.host_policy(one), CLUSTER)


async def ensure(
    cloud: LoadBalancers, *names: str
) -> Mapping[str, EnsureAnswer] | CloudError | None:
    try:
        return await cloud.ensure([desired(cloud, name) for name in names])
    except CloudError as exc:
        return exc


class LooksUpNames:
    """Strips its prefix from a provider id, and takes nothing left for no provider id."""

    batch_size = 10

    def __init__(self) -> None:
        self.asked: list[str] = []

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES if node.spec.provider_id.startswith("bad://") else Ownership.UNKNOWN

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        self.asked += [node.metadata.name for node in nodes]
        return {node.metadata.name: NotFound() for node in nodes}


@pytest.mark.parametrize("nothing", ["bad://", "bad:///", "bad:// ", "://", " "])
async def test_a_provider_id_that_names_nothing_is_never_looked_up_nor_owned(nothing: str) -> None:
    site = Site()
    site.bad.instances = LooksUpNames()
    instances = guarded(site.bad, site.guard).instances
    assert instances is not None
    unreadable, known, new = node("unreadable", nothing), node("known", "bad://1"), node("new")
    answers = await instances.describe([unreadable, known, new])
    assert site.bad.instances.asked == ["known", "new"]
    assert isinstance(answers["unreadable"], InvalidRequest)
    assert (answers["known"], answers["new"]) == (NotFound(), NotFound())
    assert isinstance((await instances.describe([unreadable]))["unreadable"], InvalidRequest)
    assert instances.owns(known) is Ownership.YES
    assert instances.owns(unreadable) is Ownership.UNKNOWN


# Calls


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        ("raise", Kind.RAISED),
        ("exit", Kind.RAISED),
        ("interrupt", Kind.RAISED),
        ("generator_exit", Kind.RAISED),
        ("group", Kind.RAISED),
        ("wrong_retry_after", Kind.WRONG_ANSWER),
        ("cancelled_error", Kind.CANCELLED),
        ("cancel", Kind.CANCELLED),
        ("none", Kind.WRONG_ANSWER),
        ("list", Kind.WRONG_ANSWER),
        ("number", Kind.WRONG_ANSWER),
    ],
)
@pytest.mark.parametrize("verb", ["ensure", "update_hosts", "delete"])
@virtual_time
async def test_whatever_befalls_a_verb_is_a_counted_error(verb: str, deed: str, kind: Kind) -> None:
    site = Site(f"{verb} web {deed}")
    cloud = await site.load_balancers()
    if verb == "delete":
        call = cloud.delete([load_balancer_ref(service("web"), CLUSTER)])
    else:
        call = getattr(cloud, verb)([desired(cloud, "web")])
    with pytest.raises(CloudError, match=verb):
        await call
    assert site.faults() == {(verb, kind.value): 1}


@pytest.mark.parametrize(
    "deed",
    ["answer_none", "answer_number", "answer_type", "answer_hollow", "answer_nan", "answer_past",
     "answer_late", "answer_hollow_ingress", "answer_empty_point", "answer_later_point"],
)  # fmt: skip
@virtual_time
async def test_a_wrong_answer_is_the_error_of_its_own_object(deed: str) -> None:
    site = Site(f"ensure web {deed}")
    answers = await ensure(await site.load_balancers(), "web", "good")
    assert isinstance(answers, dict)
    assert type(answers["uid-web"]) is Fault
    assert isinstance(answers["uid-good"], Ensured)
    assert site.faults() == {("ensure", "wrong_answer"): 1}


@virtual_time
async def test_what_is_left_out_and_what_nobody_asked_for_is_counted() -> None:
    site = Site("ensure web left_out", "ensure other unasked")
    answers = await ensure(await site.load_balancers(), "web", "other")
    assert isinstance(answers, dict)
    assert set(answers) == {"uid-other"}
    assert site.faults() == {("ensure", "left_out"): 1, ("ensure", "unasked"): 1}


@virtual_time
async def test_threads_that_a_verb_leaves_behind_are_reported_once_and_shown() -> None:
    site = Site("ensure web threads once")
    cloud = await site.load_balancers()
    try:
        for _ in range(3):
            assert isinstance(await ensure(cloud, "web"), dict)
        shown = metrics.REGISTRY.get_sample_value("proreus_provider_threads", {"state": "foreign"})
    finally:
        end_threads()
    assert site.faults() == {("ensure", "threads"): 1}
    assert shown is not None
    assert shown >= MANY_THREADS


@virtual_time
async def test_a_verb_that_hangs_ends_as_a_timeout() -> None:
    site = Site("ensure web hang")
    assert isinstance(await ensure(await site.load_balancers(), "web"), CallTimeout)
    assert asyncio.get_running_loop().time() == VERB_SECONDS
    assert site.faults() == {("ensure", "hung"): 1}
    await site.context.settled(None)


@virtual_time
async def test_a_verb_that_swallows_its_cancellation_is_left_behind_and_only_its_group_waits() -> (
    None
):
    site = Site("ensure web deaf")
    cloud = await site.load_balancers()
    before = asyncio.all_tasks()
    scope.set("group of web")
    assert isinstance(await ensure(cloud, "web"), CallTimeout)
    assert site.faults() == {("ensure", "hung"): 1, ("ensure", "uncancellable"): 1}
    await site.context.settled("another group")
    settled = asyncio.create_task(site.context.settled("group of web"))
    await asyncio.sleep(3600)
    assert not settled.done()
    assert isinstance(await ensure(cloud, "good"), dict)
    settled.cancel()
    end_deaf_ones(asyncio.all_tasks() - before - {settled})


@virtual_time
async def test_our_own_cancellation_passes_through_a_call_that_swallows_it() -> None:
    site = Site("ensure web deaf")
    cloud = await site.load_balancers()
    before = asyncio.all_tasks()
    call = asyncio.create_task(ensure(cloud, "web"))
    await asyncio.sleep(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert site.faults() == {("ensure", "uncancellable"): 1}
    end_deaf_ones(asyncio.all_tasks() - before)


def end_deaf_ones(tasks: set["asyncio.Task[object]"]) -> None:
    """Nothing but the end of the coroutine ends them; pytest's loop would wait for ever."""
    for task in tasks:
        coroutine = task.get_coro()
        assert coroutine is not None
        coroutine.close()


# Hooks


@pytest.mark.parametrize("deed", ["raise", "exit", "interrupt", "group", "none", "number"])
@virtual_time
async def test_a_hook_that_fails_has_the_answer_that_does_least_harm(deed: str) -> None:
    hooks = ("owns", "scope", "batch_size", "fingerprint")
    site = Site(*(f"{hook} * {deed}" for hook in hooks))
    started = await site.start()
    assert started.instances is not None
    assert started.load_balancers is not None
    assert started.instances.owns(node("node-1")) is Ownership.UNKNOWN
    assert scope_of(started.instances, node("node-2")) is None
    if deed != "number":  # a number is a good size
        assert started.instances.batch_size == 1
    assert started.load_balancers.fingerprint(desired(started.load_balancers, "web")) == ""
    assert site.events.seen == [("node-1", EVENT), ("node-2", EVENT), ("web", EVENT)]
    kind = "wrong_answer" if deed in {"none", "number"} else "raised"
    assert {site.faults()[hook, kind] for hook in ("owns", "scope", "fingerprint")} == {1}


class Confirming(LooksUpNames):
    """Confirms whatever a test says."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self._answer = answer

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (["a"], {}),
        ({"a"}, {}),
        (("a", "stranger"), {("confirmed", "wrong_answer"): 1}),
        ("a", {("confirmed", "wrong_answer"): 1}),
        ([["a"]], {("confirmed", "wrong_answer"): 1}),
        ({"a": "b"}, {("confirmed", "wrong_answer"): 1}),
        (None, {("confirmed", "wrong_answer"): 1}),
        (CloudError("away"), {}),
        (ValueError("x"), {("confirmed", "raised"): 1}),
    ],
)
async def test_a_wrong_confirmation_confirms_nothing(
    answer: object, fault: Mapping[tuple[str, str], int]
) -> None:
    site = Site()
    site.bad.instances = Confirming(answer)
    instances = guarded(site.bad, site.guard).instances
    assert instances is not None
    found = await confirmed_by(instances, [node("a"), node("b")])
    is_sound = isinstance(answer, list | set) and answer in (["a"], {"a"})
    assert set(found) == ({"a"} if is_sound else set())
    assert site.faults() == fault
    assert not await confirmed_by(instances, [])


async def test_a_provider_without_another_source_confirms_nothing() -> None:
    site = Site()
    site.bad.instances = LooksUpNames()
    instances = guarded(site.bad, site.guard).instances
    assert instances is not None
    assert not await confirmed_by(instances, [node("a")])
    assert not site.faults()


@virtual_time
async def test_no_verb_runs_for_a_load_balancer_without_a_group() -> None:
    site = Site("group web exit", "group other list")
    cloud = await site.load_balancers()
    for name in ("web", "other"):
        group = cloud.group(load_balancer_ref(service(name), CLUSTER))
        assert group != cloud.group(load_balancer_ref(service("good"), CLUSTER))
        scope.set(group)
        assert isinstance(await ensure(cloud, name), CloudError)
        with pytest.raises(CloudError, match="group"):
            await cloud.delete([load_balancer_ref(service(name), CLUSTER)])
    scope.set(cloud.group(load_balancer_ref(service("good"), CLUSTER)))
    assert isinstance(await ensure(cloud, "good"), dict)
    assert site.faults() == {("group", "raised"): 2}


@pytest.mark.parametrize("deed", ["raise", "exit", "none", "answer_hollow"])
@virtual_time
async def test_a_service_without_a_host_policy_has_an_error_instead(deed: str) -> None:
    site = Site(f"host_policy web {deed}")
    cloud = await site.load_balancers()
    with pytest.raises(CloudError, match="host_policy"):
        cloud.host_policy(service("web"))
    cloud.host_policy(service("good"))
    assert site.events.seen == [("web", EVENT)]


async def never(_: object) -> Any:
    """A verb that is not called."""
    raise AssertionError


@pytest.mark.parametrize(("needs", "good"), [(set[str](), False), ({"endpoint_slices"}, True)])
@virtual_time
async def test_endpoints_are_only_asked_for_where_there_are_any(
    needs: set[str],
    good: bool,  # noqa: FBT001
) -> None:
    site = Site()
    site.bad.needs |= needs
    await site.bad.start(site.context)
    site.bad.load_balancers = per_service(
        never, never, host_policy=lambda _: HostPolicy(endpoints=Endpoints.NODES)
    )
    cloud = guarded(site.bad, site.guard).load_balancers
    assert cloud is not None
    if good:
        assert cloud.host_policy(service("web")).endpoints is Endpoints.NODES
        assert site.faults() == {}
    else:
        with pytest.raises(CloudError, match="endpoint_slices"):
            cloud.host_policy(service("web"))
        assert site.faults() == {("host_policy", "wrong_answer"): 1}


@pytest.mark.parametrize(("deed", "good"), [("none", False), ("number", False), ("list", True)])
@virtual_time
async def test_a_list_of_what_is_owned_is_a_list_of_that(deed: str, good: bool) -> None:  # noqa: FBT001
    site = Site(f"list_owned * {deed}")
    cloud = await site.load_balancers()
    if good:
        assert await cloud.list_owned(CLUSTER) == []
    else:
        with pytest.raises(CloudError, match="list_owned"):
            await cloud.list_owned(CLUSTER)
        assert site.faults() == {("list_owned", "wrong_answer"): 1}


@pytest.mark.parametrize("deed", ["none", "number", "raise", "exit"])
@virtual_time
async def test_a_listing_of_routes_is_whole_or_an_error(deed: str) -> None:
    routes = (await Site(f"list_routes * {deed}").start()).routes
    assert routes is not None
    with pytest.raises(CloudError, match="list_routes"):
        await routes.list(CLUSTER, [])


@virtual_time
async def test_a_wrong_answer_about_a_route_is_the_error_of_that_route() -> None:
    site = Site("apply_routes 10.1.0.0/24 answer_number", "apply_routes 10.2.0.0/24 left_out")
    routes = (await site.start()).routes
    assert routes is not None
    bad, absent, good = (Route(f"r{i}", f"10.{i}.0.0/24", "bad://n") for i in (1, 2, 3))
    answers = await routes.apply(CLUSTER, [], [bad, absent], [good])
    assert set(answers) == {bad, good}
    assert isinstance(answers[bad], CloudError)
    assert answers[good] == Done()
    assert site.faults() == {("apply_routes", "wrong_answer"): 1, ("apply_routes", "left_out"): 1}


@virtual_time
async def test_wrong_blocks_of_a_node_are_unknown() -> None:
    site = Site(
        "describe_pod_cidrs n1 answer_number",
        "describe_pod_cidrs n2 left_out",
        "assign_pod_cidrs n1 exit",
        "release_pod_cidrs n1 interrupt",
    )
    blocks = (await site.start()).pod_cidrs
    assert blocks is not None
    nodes = [node(name) for name in ("n1", "n2", "good")]
    assert await blocks.describe(nodes) == {"good": ("10.1.0.0/24",)}
    for verb in (blocks.assign, blocks.release):
        await verb(nodes[2], ("10.1.0.0/24",))
        with pytest.raises(CloudError, match="pod_cidrs"):
            await verb(nodes[0], ("10.1.0.0/24",))


# Beside the calls


@virtual_time
async def test_sys_exit_in_a_task_of_the_provider_ends_that_task_only() -> None:
    told: list[tuple[str, str]] = []
    contain_exits(asyncio.get_running_loop(), lambda name, error: told.append((name, str(error))))
    site = Site("ensure web exit_in_a_task")
    assert isinstance(await ensure(await site.load_balancers(), "web"), dict)
    ((name, error),) = told
    assert name.endswith("background")
    assert "SystemExit: 4" in error


@virtual_time
async def test_a_task_is_otherwise_as_it_was() -> None:
    contain_exits(asyncio.get_running_loop(), lambda *_: None)

    async def answers() -> int:
        await asyncio.sleep(1)
        return 7

    async def exits_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SystemExit(9) from None

    assert await asyncio.create_task(answers()) == 7
    never_begun, exiting = (
        asyncio.create_task(answers()),
        asyncio.create_task(exits_when_cancelled()),
    )
    never_begun.cancel()
    await asyncio.sleep(0)
    exiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await never_begun
    with pytest.raises(Exited, match="SystemExit: 9"):
        await exiting
