"""A provider that misbehaves as its cloud-config says: one line for each deed.

    deeds: ["describe node-1 exit", "ensure web-2 hang", "start * exit once"]

A deed belongs to a verb and to a node or Service ("*" is any). Those in `CALLS` befall the whole
call, those in `ITEMS` the answer about the one that they name. Everything else is done well, by
a cloud that is nothing but this module.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proreus.cloudprovider import (
    CloudProvider,
    ClusterIdentity,
    ConfigSection,
    Context,
    Done,
    Ensured,
    HostPolicy,
    Instance,
    Instances,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    NotFound,
    OwnedObject,
    Ownership,
    Pending,
    PodCIDRs,
    RetryAfter,
    Route,
    Routes,
)
from proreus.kube.objects import LoadBalancerIngress, Node, NodeAddress, Service

BLOCK_SECONDS = 3.0
MANY_THREADS = 100


def hold_the_event_loop() -> None:
    """Wait without giving the event loop back."""
    time.sleep(BLOCK_SECONDS)


def _raise(error: BaseException) -> None:
    raise error


def _cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


_leaked: list[threading.Thread] = []
_enough = threading.Event()


def _leave_threads() -> None:
    """Daemons: others keep a process from ending, which is a deed of its own."""
    _enough.clear()
    for number in range(MANY_THREADS):
        thread = threading.Thread(target=_enough.wait, name=f"leaked-{number}", daemon=True)
        thread.start()
        _leaked.append(thread)


def end_threads() -> None:
    """End the threads that were left."""
    _enough.set()
    while _leaked:
        _leaked.pop().join()


async def _deaf() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def _exit_in_a_task() -> None:
    async def background() -> None:
        sys.exit(4)

    background_task = asyncio.create_task(background())
    await asyncio.wait({background_task})


async def _stay() -> None:
    """What nothing in asyncio waits out: a deaf task, a call in the executor, and a thread."""
    deaf = asyncio.create_task(_deaf())
    forever = threading.Event()
    threading.Thread(target=forever.wait, name="stays").start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(forever.wait), 0.1)
    assert not deaf.done()


CALLS: Mapping[str, Callable[[], Any]] = {
    "raise": lambda: _raise(KeyError("zone")),
    "exit": lambda: sys.exit(3),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator_exit": lambda: _raise(GeneratorExit()),
    "group": lambda: _raise(BaseExceptionGroup("of all kinds", [SystemExit(1), ValueError("x")])),
    "cancelled_error": lambda: _raise(asyncio.CancelledError()),
    "wrong_retry_after": lambda: _raise(RetryAfter("later", after=float("nan"))),
    "cancel": _cancel,
    "exit_in_a_task": _exit_in_a_task,
    "hang": lambda: asyncio.Event().wait(),
    "deaf": _deaf,
    "block": hold_the_event_loop,
    "threads": _leave_threads,
    "stay": _stay,
}
"""What befalls the call; those that come back let it go on."""

ANSWERS: Mapping[str, object] = {"none": None, "list": [], "number": 7}
"""What the whole call answers instead."""

ITEMS: Mapping[str, object] = {
    "answer_none": None,
    "answer_number": 7,
    "answer_type": Instance,
    "answer_hollow": Instance(provider_id=None),  # type: ignore[arg-type]  # that is the deed
    "answer_nan": Pending(after=float("nan"), reason="never"),
    "answer_past": Pending(after=-5.0, reason="always"),
    "answer_late": RetryAfter("later", after=None),  # type: ignore[arg-type]  # that is the deed
    "answer_hollow_ingress": Ensured(ingress=None),  # type: ignore[arg-type]  # that is the deed
    "answer_empty_point": Ensured(ingress=(LoadBalancerIngress(),)),
    "answer_later_point": Pending(1.0, "later", ingress=(LoadBalancerIngress(ip_mode="VIP"),)),
}
"""What the answer about the one is instead."""


class Config(ConfigSection, frozen=True, kw_only=True):
    """The cloud-config."""

    deeds: tuple[str, ...] = ()
    batch_size: int = 100


class Deeds:
    """What to do, by verb and name; "once" is forgotten when it is done."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._deeds: dict[tuple[str, str], tuple[str, bool]] = {}
        for line in lines:
            verb, name, deed, *once = line.split()
            self._deeds[verb, name] = (deed, bool(once))

    def take(self, verb: str, name: str = "*") -> str:
        """What is to be done, or ""."""
        for key in ((verb, name), (verb, "*")):
            deed, is_once = self._deeds.get(key, ("", False))
            if is_once:
                del self._deeds[key]
            if deed:
                return deed
        return ""

    async def call(self, verb: str, good: Mapping[Any, tuple[str, object]]) -> Any:
        """Do the verb's deeds; `good` are name and answer by key."""
        done = {key: self.take(verb, name) for key, (name, _) in good.items()}
        for deed in done.values():
            if deed in CALLS:
                result = CALLS[deed]()
                if asyncio.iscoroutine(result):
                    await result
                await asyncio.sleep(0)
        answers: dict[object, object] = {}
        for key, (_, answer) in good.items():
            deed = done[key]
            if deed in ANSWERS:
                return ANSWERS[deed]
            if deed == "unasked":
                answers["nobody"] = answer
            if deed == "duplicate":
                answer = Instance(provider_id="bad://same")
            if deed != "left_out":
                answers[key] = ITEMS.get(deed, answer)
        return answers

    def hook(self, verb: str, name: str, good: object) -> Any:
        """The same for a hook."""
        deed = self.take(verb, name)
        if deed in CALLS:
            CALLS[deed]()
        return ({**ANSWERS, **ITEMS}).get(deed, good)


class BadInstances(Instances):
    """Every node's machine is there."""

    def __init__(self, deeds: Deeds, batch_size: int) -> None:
        self._deeds = deeds
        self._batch_size = batch_size

    @property
    def batch_size(self) -> int:
        found: int = self._deeds.hook("batch_size", "*", self._batch_size)
        return found

    def owns(self, node: Node) -> Ownership:
        found: Ownership = self._deeds.hook("owns", node.metadata.name, Ownership.YES)
        return found

    def scope(self, node: Node) -> str:
        found: str = self._deeds.hook("scope", node.metadata.name, "one")
        return found

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Instance | NotFound]:
        good = {
            node.metadata.name: (node.metadata.name, machine(node.metadata.name)) for node in nodes
        }
        found: Mapping[str, Instance | NotFound] = await self._deeds.call("describe", good)
        return found


class BadLoadBalancers(LoadBalancers):
    """Every load balancer stands at once."""

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    def group(self, lb: LoadBalancerRef) -> str:
        found: str = self._deeds.hook("group", lb.service_name, lb.uid)
        return found

    def host_policy(self, service: Service) -> HostPolicy:
        found: HostPolicy = self._deeds.hook("host_policy", service.metadata.name, HostPolicy())
        return found

    def fingerprint(self, wanted: LoadBalancer) -> str:
        found: str = self._deeds.hook("fingerprint", wanted.ref.service_name, "print")
        return found

    async def ensure(self, wanted: Sequence[LoadBalancer]) -> Any:
        done = Ensured(ingress=(LoadBalancerIngress(ip="192.0.2.1"),))
        good = {lb.ref.uid: (lb.ref.service_name, done) for lb in wanted}
        return await self._deeds.call("ensure", good)

    async def update_hosts(self, wanted: Sequence[LoadBalancer]) -> Any:
        good = {lb.ref.uid: (lb.ref.service_name, Ensured()) for lb in wanted}
        return await self._deeds.call("update_hosts", good)

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Any:
        good = {lb.uid: (lb.service_name, Done()) for lb in gone}
        return await self._deeds.call("delete", good)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        found = await self._deeds.call("list_owned", {"*": ("*", None)})
        return [] if isinstance(found, dict) else found


class BadPodCIDRs(PodCIDRs):
    """One block for every node."""

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    async def describe(self, nodes: Sequence[Node]) -> Any:
        good = {node.metadata.name: (node.metadata.name, ("10.1.0.0/24",)) for node in nodes}
        return await self._deeds.call("describe_pod_cidrs", good)

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        name = node.metadata.name
        await self._deeds.call("assign_pod_cidrs", {name: (name, None)})

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        name = node.metadata.name
        await self._deeds.call("release_pod_cidrs", {name: (name, None)})


class BadRoutes(Routes):
    """Every route is made and deleted at once; names are destinations."""

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Any:
        found = await self._deeds.call("list_routes", {"*": ("*", None)})
        return [] if isinstance(found, dict) else found

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Any:
        good = {route: (route.destination, Done()) for route in (*create, *delete)}
        return await self._deeds.call("apply_routes", good)


class BadProvider(CloudProvider):
    """The provider."""

    name = "bad"
    config_type = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._deeds = Deeds(config.deeds)
        self._batch_size = config.batch_size

    async def start(self, context: Context) -> None:
        await self._deeds.call("start", {"*": ("*", None)})
        self.instances = BadInstances(self._deeds, self._batch_size)
        self.load_balancers = BadLoadBalancers(self._deeds)
        self.routes = BadRoutes(self._deeds)
        self.pod_cidrs = BadPodCIDRs(self._deeds)

    async def close(self) -> None:
        await self._deeds.call("close", {"*": ("*", None)})


def machine(name: str) -> Instance:
    """A node's machine."""
    addresses = (NodeAddress("InternalIP", "10.0.0.1"), NodeAddress("Hostname", name))
    return Instance(provider_id=f"bad://{name}", name=name, addresses=addresses)
