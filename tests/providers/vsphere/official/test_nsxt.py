"""The official manager finds what it needs in the emulated NSX-T: its SDK understands all answers.

It makes, changes and deletes load balancers and routes. Nothing that it asks for is refused, unless
the test wants it: requests and answers of the emulator are those of the vendor's model.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.contestants import Process
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ....apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen, make  # noqa: TID252
from ...managers import build  # noqa: TID252
from ..nsxt.emulator.server import Emulator, Fault, served  # noqa: TID252
from ..nsxt.emulator.world import GATEWAY, POOL, add_pool  # noqa: TID252
from ..site import Site  # noqa: TID252
from ..stage import LABELS, PACE, Stage  # noqa: TID252

pytestmark = pytest.mark.long

MODULE: Final = Path(__file__).parent / "ccm"
LONG: Final = 300.0
OWNER: Final = "vsphere-cloud-controller-manager"
BALANCING: Final = f"""
[LoadBalancer]
ip-pool-name = "VIP pool"
size = SMALL
tier1-gateway-path = {GATEWAY}
tcp-app-profile-name = default-tcp-lb-app-profile
udp-app-profile-name = default-udp-lb-app-profile
tags = "{{\\"team\\":\\"web\\"}}"
[LoadBalancerClass "inner"]
ip-pool-id = inner
"""
ROUTES: Final = f"[Route]\nrouter-path = {GATEWAY}\n"

Json = dict[str, Any]


def port(number: int, node_port: int, protocol: str = "TCP") -> Json:
    name = f"p{number}-{protocol.lower()}"
    return {"name": name, "port": number, "nodePort": node_port, "protocol": protocol}


@pytest.fixture
async def nsxt(tmp_path: Path) -> AsyncIterator[Emulator]:
    async with served(tmp_path) as running:
        # So that it has to turn pages, and to wait.
        running.page, running.realization.works = 2, 0.5
        add_pool(running, "inner", "inner", addresses="10.99.0.1-10.99.0.9")
        yield running


@asynccontextmanager
async def official(stage: Stage, program: Path) -> AsyncIterator[None]:
    """All controllers of the Go framework with the official provider; what they log is printed."""
    kubeconfig = stage.site.plane.kubeconfig_for("official", ["system:masters"])
    flags = (f"--cloud-config={stage.file}", f"--kubeconfig={kubeconfig}", "--cluster-name=test")
    pace = (*PACE, "--route-reconciliation-period=1s", "-v=2")
    log = stage.directory / "official.log"
    try:
        async with Process([str(program), *pace, *flags], log):
            yield
    finally:
        print(
            "\n".join(line for line in log.read_text().splitlines() if "zones.go" not in line)[
                -9000:
            ]
        )


async def join_for_routes(stage: Stage, program: Path, *names: str) -> None:
    """Let nodes with pod CIDRs join, and let the official manager give them addresses.

    It makes routes by the addresses that nodes have when it sees them first.
    """
    await stage.tag()
    await stage.join(*names)
    for number, name in enumerate(names):
        cidr = f"10.244.{number}.0/24"
        body = {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}
        await stage.site.client.patch(NODES, name, Patch(PatchType.MERGE, body))
    async with official(stage, program):
        await until("the nodes are there", partial(stage.initialised, names), LONG)


def tags(one: Json) -> dict[str, str]:
    return {tag["scope"]: tag["tag"] for tag in one["tags"]}


def servers(nsxt: Emulator) -> dict[tuple[str, str], Json]:
    """Virtual servers by Service and port."""
    return {
        (tags(one)["service"].removeprefix("default/"), tags(one)["port"]): one
        for one in nsxt.of("lb-virtual-servers")
    }


def members(nsxt: Emulator) -> set[frozenset[str]]:
    """The sets of members that pools have."""
    return {frozenset(one["ip_address"] for one in pool["members"]) for pool in nsxt.of("lb-pools")}


async def internal(stage: Stage) -> frozenset[str]:
    """The addresses by which the official manager knows the nodes."""
    found = await stage.site.nodes()
    return frozenset(
        next(at.address for at in one.status.addresses if at.type == "InternalIP")
        for one in found.values()
    )


def refused(nsxt: Emulator) -> list[tuple[str, str, int, str]]:
    """What was refused since this was called last."""
    found, nsxt.refused = nsxt.refused, []
    return found


async def addresses(stage: Stage, *names: str) -> dict[str, str]:
    """What Services tell their users."""
    found = {name: await stage.site.service(name) for name in names}
    return {name: one.status.load_balancer.ingress[0].ip for name, one in found.items()}


def eventually(what: str, holds: Callable[[], bool]) -> Any:
    async def attempt() -> bool:
        return holds()

    return until(what, attempt, LONG)


async def test_the_official_manager_makes_changes_and_deletes_load_balancers(
    control_plane: ControlPlane, vcenter: Site, nsxt: Emulator, tmp_path: Path
) -> None:
    program = await build(MODULE, tmp_path)
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, vcenter, tmp_path)
        stage.file.write_text(vcenter.config(LABELS + nsxt.config() + BALANCING))
        vcenter.gateway.restricted = False
        await stage.tag()
        await stage.join("node-a", "node-b")
        async with official(stage, program):
            await until(
                "the nodes are there", partial(stage.initialised, ["node-a", "node-b"]), LONG
            )
            both = (port(53, 30053), port(53, 30054, "UDP"))
            inner = Change((port(80, 30081),), {"loadbalancer.vmware.io/class": "inner"})
            wanted = {"plain": Change((port(80, 30080),)), "both": Change(both), "inner": inner}
            await make(site, wanted, LONG)
            found = servers(nsxt)
            assert found.keys() == {
                ("plain", "TCP/80"), ("both", "TCP/53"), ("both", "UDP/53"), ("inner", "TCP/80"),
            }  # fmt: skip
            told = await addresses(stage, *wanted)
            assert {one: told[one[0]] for one in found} == {
                key: one["ip_address"] for key, one in found.items()
            }
            leased = nsxt.realization.leases
            assert leased.keys() == {f"/infra/ip-pools/{id_}" for id_ in (POOL, "inner")}
            assert set(told.values()) == {address for pool in leased.values() for address in pool}
            (service,) = nsxt.of("lb-services")
            assert tags(service) == {"owner": OWNER, "cluster": "test", "team": "web"}
            assert {one["lb_service_path"] for one in found.values()} == {service["path"]}
            assert members(nsxt) == {await internal(stage)}
            assert len(nsxt.of("lb-monitor-profiles")) == 3 + 3
            assert refused(nsxt) == []

            # Another port, another node port, and one less.
            await happen(site, "plain", Change((port(80, 30090), port(443, 30443))))
            await happen(site, "both", Change((port(53, 30054, "UDP"),)))

            def is_changed() -> bool:
                now = servers(nsxt)
                return (
                    now.keys() == found.keys() - {("both", "TCP/53")} | {("plain", "TCP/443")}
                    and now["plain", "TCP/80"]["default_pool_member_ports"] == ["30090"]
                    and len(nsxt.of("lb-pools")) == 4
                    and len(nsxt.of("lb-monitor-profiles")) == 3 + 3
                )

            await eventually("the load balancers are changed", is_changed)
            assert refused(nsxt) == []

            # A node comes; somebody else changes a pool at the same moment.
            bumped: list[str] = []

            def bump(name: str, path: str) -> None:
                if name == "PUT lb-pools" and not bumped:
                    bumped.append(path)
                    with nsxt.changing(path):
                        pass

            nsxt.hooks.append(bump)
            await stage.join("node-c")
            await until(
                "the third node is there",
                partial(stage.initialised, ["node-a", "node-b", "node-c"]),
                LONG,
            )
            whole = await internal(stage)
            # It asks for the members of pools when a node gets its provider id, and when a Service
            # changes: a node that gets its addresses after the one is not there before the other.
            for name in wanted:
                body = Patch(PatchType.MERGE, {"metadata": {"annotations": {"nudge": "1"}}})
                await site.client.patch(SERVICES, name, body, "default")
            await eventually("all pools have three members", lambda: members(nsxt) == {whole})
            assert [(name, status) for name, _, status, _ in refused(nsxt)] == [
                ("PUT lb-pools", 412)
            ]

            # A request is answered late, and one fails. It would leave a pool that it fails to
            # delete: when it tries again, it takes a load balancer for what virtual servers are.
            nsxt.fail(Fault("DELETE lb-pools", status=0, seconds=1.0))
            nsxt.fail(Fault("DELETE lb-virtual-servers", status=503, code="102", message="busy"))
            for name in wanted:
                await happen(site, name, Change())
            made = ("virtual-servers", "pools", "services")
            kinds = ("ip-allocations", *(f"lb-{one}" for one in made))
            await eventually("nothing is left", lambda: not any(nsxt.of(one) for one in kinds))
            await eventually(
                "but the system's monitors", lambda: len(nsxt.of("lb-monitor-profiles")) == 3
            )
            names = [name for name, _, _, _ in refused(nsxt)]
            # It looks for the load balancer service once more after it has deleted that.
            assert [one for one in names if one != "GET lb-services"] == [
                "DELETE lb-virtual-servers"
            ]
            assert nsxt.unspent() == []


async def test_the_official_manager_makes_and_deletes_routes_as_a_principal_identity(
    control_plane: ControlPlane, vcenter: Site, nsxt: Emulator, tmp_path: Path
) -> None:
    program = await build(MODULE, tmp_path)
    files = tmp_path / "ccm.pem", tmp_path / "ccm.key"
    for file, content in zip(files, nsxt.authority.client("ccm", ()), strict=True):
        file.write_bytes(content)
    nsxt.sessions.register("ccm", files[0].read_bytes())
    section = nsxt.config(
        user="", password="", client_auth_cert_file=files[0], client_auth_key_file=files[1]
    )
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, vcenter, tmp_path)
        stage.file.write_text(vcenter.config(LABELS + section + ROUTES))
        vcenter.gateway.restricted = False
        await join_for_routes(stage, program, "node-a", "node-b")
        assert nsxt.of("static-routes") == []
        async with official(stage, program):

            async def have_routes() -> bool:
                nodes = (await site.nodes()).values()
                conditions = [(at.type, at.status) for one in nodes for at in one.status.conditions]
                return conditions.count(("NetworkUnavailable", "False")) == 2

            await until("the nodes have routes", have_routes, LONG)
            found = {tags(one)["vsphere.k8s.io/node-name"]: one for one in nsxt.of("static-routes")}
            assert {name: one["network"] for name, one in found.items()} == {
                "node-a": "10.244.0.0/24", "node-b": "10.244.1.0/24",
            }  # fmt: skip
            hops = {hop["ip_address"] for one in found.values() for hop in one["next_hops"]}
            assert hops == await internal(stage)
            assert {one["_create_user"] for one in found.values()} == {"ccm"}
            assert {one["parent_path"] for one in found.values()} == {GATEWAY}
            await site.client.delete(NODES, "node-a")
            await eventually("one route is left", lambda: len(nsxt.of("static-routes")) == 1)
            assert refused(nsxt) == []
