"""Services that share addresses of `local` where nodes announce them, over random histories.

Nobody's edit takes an address from another one, in whatever namespace, and nobody shows the address
of one that is ensured, with a port of that one: also if a status is written late, and whoever leads
next knows the statuses alone.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from proreus.cloudprovider import CloudError, ClusterIdentity, Context, Ensured, InvalidRequest
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import CONDITION_LOAD_BALANCER_READY, Condition, Service, ServicePort
from proreus.kube.objects import condition as condition_of
from proreus.providers.local import LocalCloud
from proreus.providers.local.asked import ANNOTATION_ADDRESSES, ANNOTATION_SHARING_KEY
from proreus.providers.local.bgp.config import BGP, Peer
from proreus.providers.local.config import Gateway, LocalConfig, PoolConfig
from proreus.testing import objects
from proreus.testing.clock import run

CLUSTER = ClusterIdentity("one", "uid-of-one")
ADDRESSES = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
CONFIG = LocalConfig(
    pools={
        "default": PoolConfig(
            addresses=(f"{ADDRESSES[0]}-{ADDRESSES[-1]}",), share_across_namespaces=True
        )
    },
    gateway=Gateway(enabled=False),
    bgp=BGP(as_=64512, peers={"tor": Peer(address="10.9.0.1", as_=64513)}),
)
NAMES = ("a", "b", "c", "d")
PORTS = range(80, 85)
PASSES = 4
"""As many looks at everything as it takes until nobody gets anything else."""

Edit = tuple[str, Any]
edits = st.one_of(
    st.tuples(st.just("ports"), st.sets(st.sampled_from(PORTS), min_size=1, max_size=2)),
    st.tuples(st.just(ANNOTATION_SHARING_KEY), st.sampled_from(["k", "z", ""])),
    st.tuples(st.just(ANNOTATION_ADDRESSES), st.sampled_from([*ADDRESSES, "198.51.100.1", ""])),
    st.tuples(st.just("policy"), st.sampled_from(["Local", "Cluster"])),
    st.tuples(st.just("anew"), st.none()),
)
steps = st.lists(
    st.tuples(st.sampled_from(NAMES), edits, st.sampled_from(["at once", "late"]), st.booleans()),
    max_size=10,
)


def made(name: str, namespace: str, day: int, ports: Iterable[int]) -> Service:
    return objects.service(
        name,
        namespace=namespace,
        annotations={ANNOTATION_SHARING_KEY: "k"},
        ports=ports_of(ports),
        creation_timestamp=datetime(2025, 1, day, tzinfo=UTC),
    )


def ports_of(ports: Iterable[int]) -> tuple[ServicePort, ...]:
    return tuple(ServicePort(port, name=str(port), node_port=30000 + port) for port in ports)


def edited(service: Service, edit: Edit) -> Service:
    match edit:
        case "ports", several:
            return structs.replace(
                service, spec=structs.replace(service.spec, ports=ports_of(several))
            )
        case "policy", policy:
            spec = structs.replace(service.spec, external_traffic_policy=policy)
            return structs.replace(service, spec=spec)
        case "anew", _:
            uid = f"{service.metadata.uid}-"
            meta = structs.replace(
                service.metadata, uid=uid, creation_timestamp=datetime(2025, 2, 1, tzinfo=UTC)
            )
            return structs.replace(made("x", "x", 1, PORTS[:1]), metadata=meta, spec=service.spec)
        case annotation, value:
            given = {**service.metadata.annotations, annotation: value}
            meta = structs.replace(
                service.metadata, annotations={one: text for one, text in given.items() if text}
            )
            return structs.replace(service, metadata=meta)


def shown(service: Service) -> set[str]:
    return {point.ip for point in service.status.load_balancer.ingress}


def had(service: Service) -> set[tuple[str, int]]:
    return {(ip, port.port) for ip in shown(service) for port in service.spec.ports}


def is_ready(service: Service) -> bool:
    found = condition_of(service.status.conditions, CONDITION_LOAD_BALANCER_READY)
    return found is not None and found.status == "True"


def answered(service: Service, answer: object) -> Service:
    """The Service with the status that the service controller writes after an answer."""
    assert isinstance(answer, Ensured | CloudError)
    ingress, status, reason = service.status.load_balancer.ingress, "False", "CloudError"
    if isinstance(answer, Ensured):
        ingress, status, reason = answer.ingress, "True", "Ensured"
    else:
        ingress = () if answer.disowns else ingress
        reason = "InvalidRequest" if isinstance(answer, InvalidRequest) else reason
    conditions = (Condition(CONDITION_LOAD_BALANCER_READY, status, reason=reason),)
    given = structs.replace(service.status.load_balancer, ingress=tuple(ingress))
    told = structs.replace(service.status, conditions=conditions, load_balancer=given)
    return structs.replace(service, status=told)


class Nothing:
    """What is told of events, and the nodes, of which there are none."""

    def all(self) -> Sequence[Any]:
        return ()

    def get(self, _: str) -> None:
        return None

    def event(self, *_: object) -> None:
        return None


class Site:
    """A cluster's Services, by name, and who gives them addresses."""

    def __init__(self, services: Iterable[Service]) -> None:
        self.services = {one.metadata.name: one for one in services}

    def all(self) -> Sequence[Service]:
        return tuple(self.services.values())

    def get(self, key: str) -> Service | None:
        return self.services.get(key.partition("/")[2])

    def is_alone(self, service: Service) -> bool:
        """Whether no other Service shows an address of it with one of its ports."""
        others = (one for one in self.all() if one is not service)
        return had(service).isdisjoint(chain.from_iterable(map(had, others)))

    async def lead(self) -> None:
        listers: Any = {"services": self, "nodes": Nothing()}
        nothing: Any = Nothing()
        self.provider = LocalCloud(CONFIG)
        await self.provider.start(
            Context(CLUSTER, now=lambda: datetime.now(UTC), events=nothing, listers=listers)
        )

    async def look(self, *names: str, is_late: bool = False) -> None:
        balancers = self.provider.load_balancers
        assert balancers is not None
        several = [self.services[name] for name in names]
        policy = balancers.host_policy
        desired = [desired_load_balancer(one, [], policy(one), CLUSTER) for one in several]
        answers = await balancers.ensure(desired)
        for one in several if not is_late else ():
            self.services[one.metadata.name] = answered(one, answers[one.metadata.uid])

    async def settle(self) -> None:
        for _ in range(PASSES):
            for name in NAMES:
                await self.look(name)

    async def step(self, name: str, edit: Edit, *, is_late: bool, is_last: bool) -> None:
        before, others = self.services[name], [one for one in NAMES if one != name]
        self.services[name] = edited(before, edit)
        if edit[0] == "anew":
            balancers = self.provider.load_balancers
            assert balancers is not None
            policy = balancers.host_policy(before)
            await balancers.delete([desired_load_balancer(before, [], policy, CLUSTER).ref])
        await self.look(name, is_late=is_late)
        there = dict(self.services)
        await self.look(*others)
        for one in (self.services[other] for other in others):
            if not shown(one) <= shown(there[one.metadata.name]):
                assert self.is_alone(one), "nodes lead what comes for it to another one"
        await self.settle()
        if is_last:
            await self.provider.close()
            await self.lead()
            await self.settle()


async def play(site: Site, history: Iterable[tuple[str, Edit, str, bool]]) -> None:
    await site.lead()
    try:
        await site.settle()
        for name, edit, when, is_last in history:
            before = dict(site.services)
            await site.step(name, edit, is_late=when == "late", is_last=is_last)
            for other in before.keys() - {name}:
                if is_ready(before[other]):
                    now = site.services[other]
                    assert (shown(now), is_ready(now)) == (shown(before[other]), True), other
            assert all(map(site.is_alone, filter(is_ready, site.all())))
    finally:
        await site.provider.close()


@given(
    st.permutations([1, 2, 3, 4]), st.lists(st.sampled_from("mn"), min_size=4, max_size=4), steps
)
def test_nobody_s_edit_takes_an_address_or_a_port_from_another_service(
    days: list[int], namespaces: list[str], history: list[tuple[str, Edit, str, bool]]
) -> None:
    site = Site(
        made(name, namespace, day, (port,))
        for name, namespace, day, port in zip(NAMES, namespaces, days, PORTS, strict=False)
    )
    run(play(site, history))
