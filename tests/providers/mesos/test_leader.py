"""The leading master: by address, by redirect, by a file; one that changes, ends or hangs."""

from pathlib import Path

import pytest

from proreus.cloudprovider.errors import CallTimeout, CloudError, ConfigError, Unauthenticated
from proreus.providers.mesos.api import Api
from proreus.providers.mesos.config import MesosConfig
from proreus.providers.mesos.masters import Quorum, redirected

from .emulator import HANGS, LOST, Cluster
from .site import cloud, context, describe, started


async def test_the_leader_is_asked_at_its_address(mesos: Cluster) -> None:
    async with started(mesos.config()) as provider:
        await describe(provider)
    assert mesos.calls == {"GET_MASTER": 1, "GET_AGENTS": 2}


async def test_a_master_that_does_not_lead_sends_to_the_leader_once(mesos: Cluster) -> None:
    mesos.elect(2)
    async with started(mesos.config()) as provider:
        await describe(provider)
        await describe(provider)
    assert mesos.calls == {"redirect": 1, "GET_MASTER": 1, "GET_AGENTS": 3}


async def test_a_file_may_name_the_masters(mesos: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "masters"
    file.write_text(f"master@{mesos.masters[1].address}\n")
    async with started(mesos.config(master=f"file://{file}")):
        assert mesos.masters[0].calls == {"GET_MASTER": 1, "GET_AGENTS": 1}


async def test_a_leader_that_ends_is_found_again_in_the_same_question(mesos: Cluster) -> None:
    addresses = ",".join(master.address for master in mesos.masters)
    async with started(mesos.config(master=addresses)) as provider:
        await mesos.masters[0].stop()
        mesos.elect(1)
        await describe(provider)
        await mesos.masters[0].start()
        await mesos.masters[1].stop()
        mesos.elect(2)
        await describe(provider)
    assert mesos.masters[2].calls == {"GET_AGENTS": 1}


async def test_a_leader_that_does_not_lead_any_more_sends_on(mesos: Cluster) -> None:
    async with started(mesos.config()) as provider:
        mesos.elect(1)
        await describe(provider)
        assert mesos.masters[1].calls == {"GET_AGENTS": 1}
        mesos.forget_calls()
        await describe(provider)
    assert mesos.calls == {"GET_AGENTS": 1}


class Silent:
    """A ZooKeeper that names the leader as long as it answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers = True

    async def leader(self) -> str:
        if not self.answers:
            raise CloudError("zookeeper.leader: no answer")
        return self.address


async def test_the_leader_that_is_known_is_asked_while_nobody_names_another_one(
    mesos: Cluster,
) -> None:
    """It was forgotten once a proof of absence had failed, and then no node was looked after."""
    oracle = Silent(mesos.masters[0].address)
    config = MesosConfig()
    api = Api(config, Quorum(("zk:2181",), "/mesos"), oracle, context())
    try:
        await api.agents()
        oracle.answers = False
        with pytest.raises(CloudError, match=r"zookeeper\.leader"):
            await api.prove()
        await api.agents()
        mesos.fail("GET_AGENTS", 503)
        with pytest.raises(CloudError):
            await api.agents()
        await api.agents()
    finally:
        await api.close()


async def test_without_a_leader_nothing_is_known(mesos: Cluster) -> None:
    async with started(mesos.config()) as provider:
        mesos.leader = None
        with pytest.raises(CloudError, match="No leader elected"):
            await describe(provider)
        mesos.elect(1)
        await describe(provider)


async def test_masters_that_send_in_a_circle_do_not_hold_us(mesos: Cluster) -> None:
    async with started(mesos.config()) as provider:
        mesos.leader, mesos.sends_to = None, mesos.masters[1]
        with pytest.raises(CloudError, match="each sends us to another one"):
            await describe(provider)
    assert mesos.calls["redirect"] == 2


async def test_a_master_that_has_not_read_the_registry_says_nothing_of_agents(
    mesos: Cluster,
) -> None:
    mesos.recovered = False
    with pytest.raises(CloudError, match="not finished recovery"):
        async with started(mesos.config()):
            pass


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"x"), (404, b""), (LOST, b""), (502, b"<html>"), (200, b""), (200, b"[]")],
)
async def test_answers_that_are_none_are_errors(mesos: Cluster, status: int, body: bytes) -> None:
    async with started(mesos.config()) as provider:
        mesos.fail("GET_AGENTS", status, times=2, body=body)
        with pytest.raises(CloudError):
            await describe(provider)


async def test_a_leader_that_hangs_is_left_after_the_time_of_the_cloud_config(
    mesos: Cluster,
) -> None:
    addresses = ",".join(master.address for master in mesos.masters[:1])
    async with started(mesos.config("http-client-timeout = 100ms", master=addresses)) as provider:
        mesos.fail("GET_AGENTS", HANGS)
        with pytest.raises(CallTimeout):
            await describe(provider)
        await describe(provider)


async def test_a_principal_is_sent_and_its_secret_is_not_shown(
    mesos: Cluster, tmp_path: Path
) -> None:
    mesos.principal, mesos.secret = "proreus", "planted-secret-0001"
    file = tmp_path / "secret"
    file.write_text(f"{mesos.secret}\n")
    text = mesos.config(sections=f"[Client]\nprincipal = proreus\nsecret-file = {file}\n")
    assert cloud(text).watched_files == (str(file),)
    mesos.elect(1)
    async with started(text) as provider:
        mesos.secret = "another-secret-0001"
        with pytest.raises(Unauthenticated) as caught:
            await describe(provider)
        assert "planted-secret" not in str(caught.value)


async def test_without_a_principal_masters_that_demand_one_refuse(mesos: Cluster) -> None:
    mesos.principal, mesos.secret = "proreus", "planted-secret-0001"
    with pytest.raises(Unauthenticated):
        async with started(mesos.config()):
            pass


async def test_a_certificate_that_is_no_file_is_told(mesos: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"/nowhere\.pem"):
        async with started(mesos.config(sections="[Client]\ntls = true\nca-file = /nowhere.pem\n")):
            pass


def test_with_tls_no_redirect_leaves_it() -> None:
    with pytest.raises(CloudError, match="not followed"):
        redirected("http://h:5050/api/v1", scheme="https", path="/api/v1")


async def test_the_cluster_and_its_master_are_named(mesos: Cluster) -> None:
    async with started(mesos.config()) as provider:
        assert provider.clusters is not None
        assert await provider.clusters.list() == ("mesos",)
        mesos.world.cluster = "production"
        assert await provider.clusters.list() == ("production",)
        assert await provider.clusters.master("production") == "127.0.0.1"
        mesos.elect(1)
        mesos.masters[1].info.hostname = "m1.example"
        assert await provider.clusters.master("production") == "m1.example"
        with pytest.raises(CloudError, match="'production'"):
            await provider.clusters.master("mesos")


async def test_a_principal_that_may_not_see_flags_is_told(mesos: Cluster) -> None:
    mesos.forbidden = {"view_flags"}
    async with started(mesos.config()) as provider:
        assert provider.clusters is not None
        with pytest.raises(Unauthenticated):
            await provider.clusters.list()
