"""Sessions: they end, credentials are refused, certificates are checked, vCenters fail."""

import hashlib
import ssl
from pathlib import Path

import pytest

from labs.vsphere import Fault
from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, scope_of
from proreus.providers.vsphere import logins
from proreus.testing.controlplane.certificates import Authority

from .site import Site, describe, node, one, site, started, two

IPV6 = ", ipFamily: [ipv6]"
"""What the second of two vCenters has besides: its nodes have IPv6 addresses alone."""


async def test_a_session_that_has_ended_is_begun_anew(vcenter: Site) -> None:
    await vcenter.simulator.create("a", "b")
    known = [node(name, vcenter.id(name)) for name in ("a", "b")]
    async with started(vcenter.config()) as provider:
        await describe(provider, *known)
        await vcenter.simulator.expire()
        await vcenter.simulator.change("a", power="poweredOff")
        await vcenter.simulator.destroy("b")
        found = await describe(provider, *known)
        assert vcenter.gateway.calls["Login"] == 2
    assert isinstance(found["a"], Instance)
    assert found["a"].state.value == "stopped"
    assert found["b"] == NotFound()


async def test_a_session_that_ends_at_any_call_costs_one_more(vcenter: Site) -> None:
    await vcenter.simulator.create("a", "b")
    gone = node("b", vcenter.id("b"))
    async with started(vcenter.config()) as provider:
        await describe(provider, gone)
        await vcenter.simulator.destroy("b")
        for operation in (
            "WaitForUpdatesEx",
            "CreateContainerView",
            "RetrievePropertiesEx",
            "FindAllByUuid",
        ):
            vcenter.gateway.fail(Fault(operation, name="NotAuthenticated"))
            assert await one(provider, gone) == NotFound()
        assert vcenter.gateway.calls["Login"] == 5


async def test_a_filter_that_is_gone_is_set_up_again(vcenter: Site) -> None:
    await vcenter.simulator.create("a")
    async with started(vcenter.config()) as provider:
        for name in ("InvalidCollectorVersion", "ManagedObjectNotFound"):
            vcenter.gateway.fail(Fault("WaitForUpdatesEx", name=name))
            await vcenter.simulator.change("a", power="poweredOff")
            assert (await one(provider, node("a"))).state.value == "stopped"
    assert vcenter.gateway.calls["CreatePropertyCollector"] == 3
    assert vcenter.gateway.calls["DestroyPropertyCollector"] == 2


async def test_an_answer_that_is_lost_loses_no_change(vcenter: Site) -> None:
    await vcenter.simulator.create("a")
    async with started(vcenter.config()) as provider:
        await describe(provider, node("a"))
        await vcenter.simulator.change("a", power="poweredOff")
        vcenter.gateway.fail(Fault("WaitForUpdatesEx", lost=True, after_effect=True))
        vcenter.gateway.fail(Fault("CreatePropertyCollector", status=503))
        with pytest.raises(CloudError):
            await describe(provider, node("a"))
        assert (await one(provider, node("a"))).state.value == "stopped"


async def test_the_session_ends_with_the_provider(vcenter: Site) -> None:
    async with started(vcenter.config()):
        pass
    assert vcenter.gateway.calls["Logout"] == 1


async def test_wrong_credentials_are_refused_with_the_remedy_and_sent_once(
    vcenter: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = vcenter.config(password="wrong-planted-secret")
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="check user and password") as raised:
            async with started(config):
                pass
        assert "wrong-planted-secret" not in str(raised.value)
    assert vcenter.gateway.calls["Login"] == 1
    monkeypatch.setattr(logins.LOGINS, "_pause", 0.0)
    with pytest.raises(Unauthenticated):
        async with started(config):
            pass
    assert vcenter.gateway.calls["Login"] == 2
    async with started(vcenter.config()):
        pass


async def test_credentials_come_from_a_mounted_secret(vcenter: Site, tmp_path: Path) -> None:
    await vcenter.simulator.create("a")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "..data").mkdir()
    (secret / "127.0.0.1.username").write_text("k8s@vsphere.local\n")
    config = vcenter.config(user="", password="", secret_name="s", secrets_directory=secret)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1: has no password"):
        async with started(config):
            pass
    (secret / "127.0.0.1.password").write_text("planted-secret")
    async with started(config) as provider:
        assert isinstance(await one(provider, node("a")), Instance)
        assert provider.watched_files == tuple(
            sorted(
                (
                    str(vcenter.ca_file),
                    str(secret / "127.0.0.1.password"),
                    str(secret / "127.0.0.1.username"),
                )
            )
        )


async def test_a_secret_that_is_not_mounted_says_where_it_belongs(
    vcenter: Site, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere"
    config = vcenter.config(user="", password="", secret_name="vs", secrets_directory=nowhere)
    with pytest.raises(ConfigError, match=f"mount the Secret vs at {nowhere}"):
        async with started(config):
            pass


def digest(vcenter: Site, algorithm: str) -> str:
    der = ssl.PEM_cert_to_DER_cert(vcenter.gateway.certificate.decode())
    text = hashlib.new(algorithm, der).hexdigest().upper()
    return ":".join(text[at : at + 2] for at in range(0, len(text), 2))


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
async def test_a_certificate_is_trusted_by_its_thumbprint(vcenter: Site, algorithm: str) -> None:
    config = vcenter.config(ca_file="", thumbprint=digest(vcenter, algorithm))
    async with started(config) as provider:
        await describe(provider)


async def test_a_certificate_of_nobody_is_refused(vcenter: Site) -> None:
    for thumbprint in ("", "00:" * 19 + "00"):
        with pytest.raises(CloudError, match="certificate is not trusted"):
            async with started(vcenter.config(ca_file="", thumbprint=thumbprint)):
                pass
    async with started(vcenter.config(ca_file="", insecure_flag="true")):
        pass


async def test_another_thumbprint_leaves_it_to_the_authorities(vcenter: Site) -> None:
    async with started(vcenter.config(thumbprint="0" * 40)):
        pass


async def test_a_pinned_certificate_is_not_one_of_the_same_authority(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = vcenter.config(ca_file="", thumbprint=digest(vcenter, "sha1"))
    async with started(config) as provider:
        await vcenter.gateway.__aexit__(None, None, None)
        await vcenter.gateway.__aenter__()  # on the same port, with a new certificate
        with pytest.raises(CloudError, match="not trusted"):
            await describe(provider, node("a"))


async def test_several_vcenters_are_one_cloud_with_a_scope_each(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with site(tmp_path_factory.mktemp("b"), Authority()) as other:
        await vcenter.simulator.create("a")
        await other.simulator.create(
            "b", nics=[{"network": "n", "addresses": ["fd00::5"], "device": 1}]
        )
        nodes = [node("a", vcenter.id("a")), node("b", other.id("b"))]
        unseen = node("c", "vsphere://00000000-0000-4000-8000-000000000001")
        async with started(two(vcenter, other, IPV6)) as provider:
            assert provider.instances is not None
            found = await describe(provider, *nodes, unseen)
            assert [found[name].additional_labels for name in "ab"] == [
                {"vsphere.proreus/vcenter": "east"}, {"vsphere.proreus/vcenter": "west"},
            ]  # fmt: skip
            assert found["b"].addresses[1].address == "fd00::5"
            assert found["c"] == NotFound()
            assert [scope_of(provider.instances, one) for one in nodes] == ["east", "west"]
            labelled = node("c", unseen.spec.provider_id, vsphere__vcenter="")
            with pytest.raises(CloudError, match="which vCenter"):
                scope_of(provider.instances, labelled)
        async with started(two(vcenter, other, IPV6)) as provider:
            assert provider.instances is not None
            told = node("c", unseen.spec.provider_id, **{"vsphere.proreus/vcenter": "west"})
            assert scope_of(provider.instances, told) == "west"


async def test_a_replica_in_another_vcenter_does_not_stand_in_for_a_hidden_machine(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """East hides the machine, such as with a right that was lost; in west its replica is off."""
    async with site(tmp_path_factory.mktemp("b"), Authority()) as other:
        await vcenter.simulator.create("a")
        uuid, id_ = vcenter.simulator.uuids["a"], vcenter.id("a")
        await other.simulator.create("a", uuid=uuid, power="poweredOff")
        labels = {"vsphere.proreus/vcenter": "east"}
        async with started(two(vcenter, other)) as provider:
            assert (await one(provider, node("a", id_))).state is InstanceState.RUNNING
            await vcenter.simulator.change("a", uuid=" ")
            found = await one(provider, node("a", id_))
            assert isinstance(found, CloudError), found
            assert "replica" in str(found)
        async with started(two(vcenter, other)) as provider:
            found = await one(provider, node("a", id_, **labels))
            assert isinstance(found, CloudError), found
            # Once it runs there, it is the machine.
            await other.simulator.change("a", power="poweredOn")
            assert (await one(provider, node("a", id_, **labels))).state is InstanceState.RUNNING
            await other.simulator.change("a", power="poweredOff")
            assert (await one(provider, node("a", id_, **labels))).powered_off


async def test_a_replica_in_another_vcenter_does_not_stand_in_for_a_machine_that_looks_gone(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """East lacks the machine, which may live: its vCenter was restored from an older backup.

    Nodes of west could not vouch for that; nor is a Node of east a witness by its replica there.
    """
    async with site(tmp_path_factory.mktemp("b"), Authority()) as other:
        await vcenter.simulator.create("a")
        known, uuid = node("a", vcenter.id("a")), vcenter.simulator.uuids["a"]
        await other.simulator.create("a", uuid=uuid, power="poweredOff")
        async with started(two(vcenter, other)) as provider:
            assert provider.instances is not None
            assert (await one(provider, known)).state is InstanceState.RUNNING
            await vcenter.simulator.destroy("a")
            for _ in range(2):
                found = await one(provider, known)
                assert isinstance(found, CloudError), found
                assert "replica" in str(found)
                assert scope_of(provider.instances, known) == "east"
            # It may have been moved there: then it is gone only if it is gone there, too.
            await other.simulator.destroy("a")
            other.gateway.fail(Fault("RetrievePropertiesEx", skipped=1, name="NoPermission"))
            assert isinstance(await one(provider, known), CloudError)
            assert not other.gateway.unspent()
            await other.simulator.create("a", uuid=uuid, power="poweredOff")
            assert isinstance(await one(provider, known), CloudError)
            # Once it has run there, it is the machine.
            for power in ("poweredOn", "poweredOff"):
                await other.simulator.change("a", power=power)
                assert (await one(provider, known)).powered_off is (power == "poweredOff")
                assert scope_of(provider.instances, known) == "west"


async def test_a_vcenter_that_left_the_cloud_config_keeps_its_nodes(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """West is out, and taken from the cloud-config; its machines go on, their Nodes are silent."""
    async with site(tmp_path_factory.mktemp("b"), Authority()) as other:
        await other.simulator.create("b")
        lives = node("b", other.id("b"), **{"vsphere.proreus/vcenter": "west"})
        west = f"  west: {{server: 127.0.0.1, port: {other.gateway.port}}}\n"
        alone = two(vcenter, other).replace(west, "")
        assert "west" not in alone
        async with started(alone) as provider:
            assert provider.instances is not None
            with pytest.raises(CloudError, match="vCenter west"):
                scope_of(provider.instances, lives)
            # Nor does a replica in east, which is off, stand in for its machine.
            await vcenter.simulator.create("b", uuid=other.simulator.uuids["b"], power="poweredOff")
            found = await one(provider, lives)
            assert isinstance(found, CloudError), found
            assert "replica" in str(found)
            # Once east runs it, such as after a failover, it is the machine.
            await vcenter.simulator.change("b", power="poweredOn")
            assert (await one(provider, lives)).state is InstanceState.RUNNING
            assert scope_of(provider.instances, lives) == "east"


async def test_a_vcenter_that_is_down_holds_up_only_what_it_may_have(
    vcenter: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with site(tmp_path_factory.mktemp("b"), Authority()) as other:
        await vcenter.simulator.create("a")
        nodes = [
            node("a", vcenter.id("a")),
            node("gone", "vsphere://00000000-0000-4000-8000-000000000001"),
        ]
        other.gateway.fail(Fault(".*", times=1000, status=503))
        async with started(two(vcenter, other, IPV6)) as provider:
            found = await describe(provider, *nodes)
            assert isinstance(found["a"], Instance)
            assert isinstance(found["gone"], CloudError)
            assert "vCenter west" in str(found["gone"])
