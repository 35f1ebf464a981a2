"""Two Services at one address, of which one asks for the other's port and is not given it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from proreus.app.clouds.several import Several
from proreus.cloudprovider import (
    CloudError,
    Context,
    DeleteAnswer,
    Done,
    Ensured,
    HostPolicy,
    ImplementedElsewhere,
    Instance,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.cloudprovider.machines import in_bulk
from proreus.controllers.service.contested import Holders
from proreus.controllers.service.intake import CONDITION_CLOUD, UNDECIDED
from proreus.kube.objects import (
    Condition,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceStatus,
)
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, Balancers, Cloud, leading

ADDRESS = "192.0.2.1"
CLOUDS = "east=cloud,west=cloud"
WRONG = {"cloud/idle-timeout": "wrong"}
THEIRS = {"cloud/backend": "of another controller"}
NOWHERE = {"proreus.io/cloud": "nowhere"}


class OneAddress(Balancers):
    """A cloud that gives all Services one address, and each port to the first one."""

    def __init__(self) -> None:
        self.holders: dict[int, str] = {}
        self.fails = False
        self.waits = False
        self.giving_up = ""
        self.is_generous = False
        self.others: dict[str, str] = {}
        self.ensured: list[str] = []
        self.deletion: DeleteAnswer = Done()
        self.deleted: list[str] = []
        self.proofs: list[str] = []

    def host_policy(self, service: Service) -> HostPolicy:
        if WRONG.items() <= service.metadata.annotations.items():
            raise InvalidRequest("the annotation cloud/idle-timeout is wrong")
        return HostPolicy()

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        return {lb.ref.uid: self._ensured(lb) for lb in desired}

    def _ensured(self, lb: LoadBalancer) -> Ensured | Pending | CloudError:
        uid, ports = lb.ref.uid, {one.port for one in lb.frontends}
        self.ensured.append(lb.ref.namespace)
        if other := self.others.get(lb.ref.namespace, ADDRESS if self.is_generous else ""):
            return Ensured((LoadBalancerIngress(ip=other),))
        if lb.ref.namespace == self.giving_up:
            self.holders = {port: one for port, one in self.holders.items() if one != uid}
            return InvalidRequest("the next address cannot be had")
        if THEIRS.items() <= lb.service.metadata.annotations.items():
            return ImplementedElsewhere("another controller is asked for")
        if self.waits:
            return Pending(3600.0, "the cloud works")
        if self.fails or any(self.holders.get(one, uid) != uid for one in ports):
            return CloudError("the port is in use" if not self.fails else "the cloud is out")
        self.holders = {port: one for port, one in self.holders.items() if one != uid}
        self.holders.update(dict.fromkeys(ports, uid))
        return Ensured((LoadBalancerIngress(ip=ADDRESS),))

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        self.deleted += [one.uid for one in gone]
        self.proofs += [point.ip for one in gone for point in one.last_ingress]
        return {one.uid: self.deletion for one in gone}


class WithMachines(Cloud):
    """A cloud that has machines, of which nobody asks."""

    async def start(self, context: Context) -> None:
        await super().start(context)
        self.instances = in_bulk(self._search, parse=str)

    @staticmethod
    async def _search(ids: Sequence[str], names: Sequence[str]) -> tuple[Instance, ...]:
        raise AssertionError(f"machines are looked up: {ids}, {names}")


class Stage:
    """The Services of two tenants, who share an address."""

    def __init__(self, kind: type[Store] = Store) -> None:
        loop = asyncio.get_running_loop()
        self.store = kind(lambda: EPOCH + timedelta(seconds=loop.time()))
        self.balancers = OneAddress()
        self.west = OneAddress()
        for namespace, port in (("shop", 80), ("bank", 443)):
            spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": port}]}
            self.store.create(SERVICES, namespace, {"metadata": {"name": "web"}, "spec": spec})

    @asynccontextmanager
    async def managed(self) -> AsyncIterator[None]:
        async with (
            MemoryApiServer(self.store) as server,
            leading(server.url, Cloud(self.balancers), "service-lb-controller"),
        ):
            await asyncio.sleep(10)
            yield
            await asyncio.sleep(20)

    @asynccontextmanager
    async def managed_with_another_cloud(self) -> AsyncIterator[None]:
        east, west = WithMachines(self.balancers), WithMachines(self.west)
        clouds = Several({"east": east, "west": west})
        async with (
            MemoryApiServer(self.store) as server,
            leading(server.url, clouds, "service-lb-controller", cloud_provider=CLOUDS),
        ):
            await asyncio.sleep(10)
            yield
            await asyncio.sleep(20)

    def add_node_in_the_east(self) -> None:
        """Make a Node with the address of the Services, in that cloud."""
        meta = {"name": "far", "labels": {"proreus.io/cloud": "east"}}
        status = {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}
        spec = {"providerID": "cloud://far"}
        self.store.create(NODES, "", {"metadata": meta, "spec": spec, "status": status})

    def edit(self, namespace: str, port: int, annotations: Mapping[str, str]) -> None:
        found = self.store.get(SERVICES, namespace, "web")
        spec = {**found.body["spec"], "ports": [{"port": port}]}
        meta = {**found.metadata, "annotations": dict(annotations)}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta, "spec": spec})

    def edit_alone(self, namespace: str, port: int, annotations: Mapping[str, str]) -> None:
        """Edit a Service of which its owner takes our finalizer away."""
        found = self.store.get(SERVICES, namespace, "web")
        meta = {**found.metadata, "finalizers": []}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta})
        self.edit(namespace, port, annotations)

    def delete(self, namespace: str) -> None:
        self.store.delete(SERVICES, self.store.get(SERVICES, namespace, "web"), {})

    def delete_held(self, namespace: str) -> None:
        """Delete a Service that has a finalizer of its owner beside ours."""
        found = self.store.get(SERVICES, namespace, "web")
        kept = [*found.metadata["finalizers"], f"{namespace}.example/hold"]
        meta = {**found.metadata, "finalizers": kept}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta})
        self.delete(namespace)

    def delete_alone(self, namespace: str, port: int, annotations: Mapping[str, str]) -> None:
        """Delete a Service of which its owner keeps no finalizer but one of his own."""
        found = self.store.get(SERVICES, namespace, "web")
        meta = {**found.metadata, "finalizers": [f"{namespace}.example/hold"]}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta})
        self.delete(namespace)
        self.edit(namespace, port, annotations)

    def shown(self, namespace: str) -> list[str]:
        status = self.store.get(SERVICES, namespace, "web").body.get("status", {})
        return [one["ip"] for one in status.get("loadBalancer", {}).get("ingress", ())]


@pytest.mark.parametrize(
    "annotations",
    [{}, WRONG, THEIRS],
    ids=["by the cloud", "for an annotation", "for another controller"],
)
@pytest.mark.parametrize("is_led", [True, False], ids=["meanwhile", "before the manager starts"])
@virtual_time
async def test_who_asks_for_a_port_of_another_one_shows_their_address_no_more(
    annotations: dict[str, str], *, is_led: bool
) -> None:
    """Nodes' kube-proxies go by ports and status alone: one of both would have all clients."""
    stage = Stage()
    async with stage.managed():
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]
        if is_led:
            stage.edit("bank", 80, annotations)
    if not is_led:
        stage.edit("bank", 80, annotations)
        async with stage.managed():
            pass
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
    stage.edit("bank", 8080, {})
    async with stage.managed():
        pass
    assert stage.shown("bank") == [ADDRESS]


@virtual_time
async def test_who_had_the_port_goes_on_showing_the_address_while_the_cloud_fails() -> None:
    stage = Stage()
    async with stage.managed():
        stage.balancers.fails = True
        stage.edit("bank", 80, {})
        stage.edit("shop", 80, {"a": "b"})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@virtual_time
async def test_who_waits_for_the_cloud_with_a_port_of_another_one_shows_the_address_no_more() -> (
    None
):
    stage = Stage()
    async with stage.managed():
        stage.balancers.waits = True
        stage.edit("bank", 80, {})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@pytest.mark.parametrize("annotations", [{}, WRONG], ids=["by the cloud", "for an annotation"])
@virtual_time
async def test_who_fails_without_a_port_of_others_goes_on_showing_the_address(
    annotations: dict[str, str],
) -> None:
    stage = Stage()
    async with stage.managed():
        stage.balancers.fails = True
        stage.edit("bank", 8443, annotations)
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]


@virtual_time
async def test_of_two_that_ask_for_a_port_that_neither_had_both_go_on_showing_the_address() -> None:
    stage = Stage()
    async with stage.managed():
        stage.balancers.fails = True
        stage.edit("shop", 8443, {})
        stage.edit("bank", 8443, {})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]


@pytest.mark.parametrize("is_led", [True, False], ids=["meanwhile", "before the manager starts"])
@virtual_time
async def test_who_asked_in_vain_for_a_port_before_another_one_got_it_shows_the_address_no_more(
    *, is_led: bool
) -> None:
    """It may be refused for as long as it likes, and wait for others at a port that is free."""
    stage = Stage()
    async with stage.managed():
        if is_led:
            stage.edit("bank", 8080, WRONG)
            await asyncio.sleep(10)
            stage.edit("shop", 8080, {})
    if not is_led:
        stage.edit("bank", 8080, WRONG)
        async with stage.managed():
            assert stage.shown("bank") == [ADDRESS]
            stage.edit("shop", 8080, {})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
    stage.edit("bank", 443, {})
    async with stage.managed():
        pass
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]


@pytest.mark.parametrize("answer", [CloudError("it is out"), Pending(3600.0, "it works")])
@pytest.mark.parametrize("is_first", [False, True], ids=["later", "first"])
@virtual_time
async def test_who_is_being_deleted_and_asks_for_a_port_of_another_one_shows_the_address_no_more(
    answer: DeleteAnswer, *, is_first: bool
) -> None:
    """The API server takes another spec also then, and nodes go by it until the Service is gone."""
    stage = Stage()
    async with stage.managed():
        stage.balancers.deletion = answer
        stage.delete("bank")
        await asyncio.sleep(10)
        assert stage.shown("bank") == [ADDRESS]
        if is_first:
            stage.edit("bank", 8080, {})
            await asyncio.sleep(10)
            stage.edit("shop", 8080, {})
        else:
            stage.edit("bank", 80, {})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@pytest.mark.parametrize("restarts", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize("is_first", [False, True], ids=["later", "first"])
@virtual_time
async def test_who_is_left_to_another_controller_shows_no_address_beside_a_port_of_another_one(
    *, is_first: bool, restarts: bool
) -> None:
    """There need not be one, and somebody may have deleted what the Service had."""
    stage = Stage()
    async with stage.managed():
        del stage.balancers.holders[443]
        stage.edit("bank", 443 if is_first else 8443, THEIRS)
        if not restarts:
            await asyncio.sleep(10)
            stage.edit("shop", 443, {})
    async with stage.managed():
        if restarts:
            assert stage.shown("bank") == [ADDRESS]
            stage.edit("shop", 443, {})
        if not is_first:
            await asyncio.sleep(10)
            stage.edit("bank", 443, THEIRS)
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@pytest.mark.parametrize("is_first", [False, True], ids=["later", "first"])
@pytest.mark.parametrize("cloud", ["west", "nowhere"])
@virtual_time
async def test_who_names_another_cloud_shows_no_address_beside_a_port_of_another_one_there(
    cloud: str, *, is_first: bool
) -> None:
    """Whoever may edit a Service can change the note of its cloud while no manager runs.

    One that names another cloud truly leaves its own first.
    """
    stage = Stage()
    async with stage.managed_with_another_cloud():
        pass
    annotations = {"proreus.io/cloud-in-use": cloud, "proreus.io/cloud": cloud, **WRONG}
    stage.edit("bank", 8080 if is_first else 80, annotations)
    async with stage.managed_with_another_cloud():
        if is_first:
            kept = [ADDRESS] if cloud == "nowhere" else []
            assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], kept]
            stage.edit("shop", 8080, {"proreus.io/cloud-in-use": "east"})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@virtual_time
async def test_a_port_that_a_service_had_in_another_cloud_is_not_its_own_in_the_next() -> None:
    """That cloud may take long to delete what it has, and nobody waits for it."""
    stage = Stage()
    stage.balancers.others["bank"] = "192.0.2.9"
    stage.balancers.deletion = CloudError("the cloud is out")
    stage.edit("shop", 443, {"proreus.io/cloud": "west"})
    async with stage.managed_with_another_cloud():
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], ["192.0.2.9"]]
        stage.edit_alone("bank", 80, {"proreus.io/cloud": "west"})
        await asyncio.sleep(10)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]
        stage.edit("bank", 443, {"proreus.io/cloud": "west", **WRONG})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["refused", "deleted"])
@virtual_time
async def test_an_address_of_the_cloud_that_a_service_has_left_is_shown_no_more(
    *, is_deleted: bool
) -> None:
    """That one deletes what has it, and gives it to others; the next one may look at nothing."""
    stage = Stage()
    stage.west.deletion = CloudError("the cloud is out")
    async with stage.managed_with_another_cloud():
        stage.edit_alone("bank", 443, {"proreus.io/cloud": "west", **WRONG})
        if is_deleted:
            stage.delete_alone("bank", 443, {"proreus.io/cloud": "west", **WRONG})
        await asyncio.sleep(30)
        assert len(stage.balancers.deleted) == 1
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@virtual_time
async def test_who_gets_another_one_s_port_at_its_address_from_another_cloud_does_not_show_it() -> (
    None
):
    """Clouds may have the same addresses: whoever makes Services until one gets it would have it."""
    stage = Stage()
    stage.edit("bank", 80, {"proreus.io/cloud": "east"})
    stage.edit("shop", 80, {"proreus.io/cloud": "west"})
    stage.west.others["shop"] = "192.0.2.9"
    async with stage.managed_with_another_cloud():
        stage.west.others.clear()
        stage.edit("shop", 80, {"proreus.io/cloud": "west", "a": "b"})
        await asyncio.sleep(60)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[], [ADDRESS]]
        stage.edit("shop", 443, {"proreus.io/cloud": "west"})
        await asyncio.sleep(600)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]
        stage.edit("shop", 80, {"proreus.io/cloud": "west"})
        await asyncio.sleep(60)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[], [ADDRESS]]


@virtual_time
async def test_an_address_of_a_node_in_another_cloud_is_not_given() -> None:
    """Clouds may have the same addresses: nodes would lead what comes for that node elsewhere."""
    stage = Stage()
    for namespace, cloud in (("bank", "east"), ("shop", "west")):
        stage.edit(namespace, 80, {"proreus.io/cloud": cloud})
    stage.west.others["shop"] = "192.0.2.9"
    async with stage.managed_with_another_cloud():
        stage.add_node_in_the_east()
        stage.west.others.clear()
        stage.edit("shop", 443, {"proreus.io/cloud": "west"})
        await asyncio.sleep(60)
        assert stage.shown("shop") == []
        assert stage.shown("bank") == [ADDRESS], "the node is of the cloud that gives it"


@virtual_time
async def test_an_address_that_a_node_in_another_cloud_claims_stays_shown() -> None:
    stage = Stage()
    stage.edit("shop", 80, {"proreus.io/cloud": "west"})
    async with stage.managed_with_another_cloud():
        stage.add_node_in_the_east()
        stage.edit("shop", 81, {"proreus.io/cloud": "west"})
        await asyncio.sleep(60)
        assert stage.shown("shop") == [ADDRESS]


def test_an_address_is_left_to_its_cloud_while_no_cloud_can_be_chosen() -> None:
    """Such as since that one has no load balancers any more, by its cloud-config."""
    holders = Holders(lambda _, __: ())
    tells = {
        cloud: holders.join(cloud, {}, lambda _: None) for cloud in ("east", "west", UNDECIDED)
    }
    noted = Condition(CONDITION_CLOUD, "True", "Recorded", "east")
    shown = LoadBalancerStatus((LoadBalancerIngress(ip=ADDRESS),))
    service = Service(status=ServiceStatus(load_balancer=shown, conditions=(noted,)))
    assert [cloud for cloud, tell in tells.items() if tell(service)] == ["west"]


@virtual_time
async def test_who_asks_for_a_port_of_one_that_is_in_no_cloud_takes_nothing_from_it() -> None:
    stage = Stage()
    async with stage.managed_with_another_cloud():
        pass
    stage.edit("bank", 443, {"proreus.io/cloud-in-use": "nowhere"})
    stage.edit("shop", 443, {})
    async with stage.managed_with_another_cloud():
        pass
    assert stage.shown("bank") == [ADDRESS]


@pytest.mark.parametrize("note", [{}, {"proreus.io/cloud-in-use": "west"}, NOWHERE])
@pytest.mark.parametrize("is_alone", [True, False], ids=["one cloud", "several"])
@virtual_time
async def test_who_is_deleted_without_our_finalizer_and_stays_shows_no_address(
    note: dict[str, str], *, is_alone: bool
) -> None:
    """Its owner took it away while no manager ran, and the cloud's note, and has one of his own."""
    stage = Stage()
    managed = stage.managed if is_alone else stage.managed_with_another_cloud
    async with managed():
        pass
    stage.delete_alone("bank", 80, note)
    async with managed():
        pass
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]
    assert len(stage.balancers.deleted) == 1


@virtual_time
async def test_who_asks_again_for_a_port_that_another_one_was_given_shows_the_address_no_more() -> (
    None
):
    """It asked for others while that one got the port, such as since somebody had deleted its own."""
    stage = Stage()
    async with stage.managed():
        stage.edit("bank", 8443, WRONG)
        await asyncio.sleep(10)
        stage.balancers.holders = {80: stage.balancers.holders[80]}
        stage.edit("shop", 443, {})
        await asyncio.sleep(10)
        assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]
        stage.edit("bank", 443, WRONG)
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@pytest.mark.parametrize("annotations", [{"a": "b"}, WRONG], ids=["by the cloud", "before"])
@virtual_time
async def test_an_address_that_another_one_was_given_since_is_shown_no_more(
    annotations: dict[str, str],
) -> None:
    """A Service that has left it may be refused the next one for as long as it likes."""
    stage = Stage()
    async with stage.managed():
        stage.balancers.giving_up = "shop"
        stage.edit("shop", 80, {"a": "a"})
        await asyncio.sleep(10)
        stage.edit("shop", 80, annotations)
        await asyncio.sleep(10)
        assert stage.shown("shop") == [ADDRESS]
        stage.edit("bank", 80, {})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[], [ADDRESS]]


@virtual_time
async def test_who_has_lost_its_port_to_another_one_shows_the_address_no_more() -> None:
    """What it had was deleted by hand, which no list tells for an hour; but whose the port is."""
    stage = Stage()
    async with stage.managed():
        del stage.balancers.holders[443]
        stage.edit("shop", 443, {})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@virtual_time
async def test_who_has_lost_its_port_to_one_that_moved_shows_the_address_no_more() -> None:
    stage = Stage()
    async with stage.managed():
        stage.balancers.others["shop"] = "192.0.2.9"
        stage.edit("shop", 443, {})
        await asyncio.sleep(20)
        assert stage.shown("shop") == ["192.0.2.9"]
        del stage.balancers.holders[443]
        stage.balancers.others.clear()
        stage.edit("shop", 443, {"a": "b"})
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], []]


@virtual_time
async def test_two_that_a_cloud_gives_one_port_are_not_ensured_again_and_again() -> None:
    stage = Stage()
    async with stage.managed():
        stage.balancers.is_generous = True
        stage.balancers.ensured.clear()
        stage.edit("shop", 443, {})
        await asyncio.sleep(600)
    # The address left the first one's status for a moment, and so counts as one that it was given.
    assert stage.balancers.ensured == ["shop", "bank", "shop", "bank"]
    assert [stage.shown(one) for one in ("shop", "bank")] == [[ADDRESS], [ADDRESS]]


@pytest.mark.parametrize("annotations", [{}, WRONG], ids=["by the cloud", "for an annotation"])
@virtual_time
async def test_an_address_that_left_the_status_as_another_one_s_proves_nothing_later(
    annotations: dict[str, str],
) -> None:
    """That one may go, and the cloud give the address to a cluster of the same name."""
    stage = Stage()
    async with stage.managed():
        stage.edit("bank", 80, annotations)
        await asyncio.sleep(20)
        assert stage.shown("bank") == []
        stage.delete("bank")
        await asyncio.sleep(20)
        assert len(stage.balancers.deleted) > 0
    assert stage.balancers.proofs == []
