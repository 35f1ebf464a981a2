"""Instances: how they are found, what their descriptions mean, and what absence is."""

import msgspec
import pytest

from proreus.cloudprovider.errors import (
    CloudError,
    IdentityConflict,
    InvalidRequest,
    RetryAfter,
    Throttled,
)
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.kube.objects import NodeAddress
from proreus.providers.gce import GCECloud
from proreus.providers.gce.machines import Described, addresses, instance, node_tag
from proreus.providers.gce.names import machine, machine_in, ownership, parsed, path_in
from proreus.providers.gce.reading import SAMPLE, doubt, sampled

from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .site import config_text, node, node_of, started


async def answers(gce: Gce, *nodes: str, extra: str = "") -> dict[str, InstanceAnswer]:
    """What is said of nodes without provider ids."""
    async with started(config_text(gce, extra)) as provider:
        return await described(provider, *(node(one) for one in nodes))


async def described(provider: GCECloud, *nodes: object) -> dict[str, InstanceAnswer]:
    assert provider.instances is not None
    return dict(await provider.instances.describe(nodes))  # type: ignore[arg-type]


def machine_of(answer: InstanceAnswer) -> Instance:
    assert isinstance(answer, Instance), answer
    return answer


async def test_an_instance_is_described_in_official_terms(gce: Gce) -> None:
    gce.run("n1", zone=ZONES[1])
    found = (await answers(gce, "n1"))["n1"]
    assert found == Instance(
        provider_id=f"gce://{PROJECT}/{ZONES[1]}/n1",
        name="n1",
        instance_type="e2-standard-4",
        zone="us-central1-b",
        region="us-central1",
        addresses=(
            NodeAddress("InternalIP", "10.128.0.3"),
            NodeAddress("ExternalIP", "35.184.0.3"),
        ),
    )


async def test_a_node_s_name_is_its_instance_s_up_to_the_first_dot(gce: Gce) -> None:
    gce.run("n1")
    name = "n1.c.proreus-test.internal"
    assert machine_of((await answers(gce, name))[name]).name == "n1"


async def test_many_nodes_cost_the_pages_of_one_list(gce: Gce) -> None:
    gce.world.page = 50
    names = [f"n{number:03}" for number in range(120)]
    gce.run(*names)
    async with started(config_text(gce)) as provider:
        gce.calls.clear()
        found = await described(provider, *(node_of(one) for one in names))
        assert all(isinstance(one, Instance) for one in found.values())
        assert gce.calls == ["compute.instances.aggregatedList"] * 3


async def test_few_nodes_are_read_one_by_one(gce: Gce) -> None:
    gce.run("n1", "n2")
    async with started(config_text(gce)) as provider:
        gce.calls.clear()
        await described(provider, node_of("n1"), node_of("n2"))
        assert gce.calls == ["compute.instances.get"] * 2


async def test_what_the_list_lacks_is_asked_for_by_name(gce: Gce) -> None:
    names = [f"n{number}" for number in range(10)]
    gce.run(*names)
    gce.terminate("n3")
    async with started(config_text(gce)) as provider:
        found = await described(provider, *(node_of(one) for one in names))
        assert found["n3"] == NotFound()
        assert gce.calls.count("compute.instances.get") == 1
        assert sum(isinstance(one, Instance) for one in found.values()) == 9


async def test_an_instance_in_a_zone_that_is_down_is_not_absent(gce: Gce) -> None:
    names = [f"n{number}" for number in range(10)]
    gce.run(*names)
    gce.run("other", zone=ZONES[1])
    gce.world.down = {ZONES[0]}
    gce.fail("compute.instances.get", times=100, target=f"/zones/{ZONES[0]}/")
    async with started(config_text(gce)) as provider:
        found = await described(
            provider, *(node_of(one) for one in names), node_of("other", ZONES[1])
        )
        assert isinstance(found["other"], Instance)
        assert all(isinstance(found[one], CloudError) for one in names)


async def test_an_instance_that_lists_do_not_show_yet_is_not_absent(gce: Gce) -> None:
    gce.world.lag = 3600.0
    names = [f"n{number}" for number in range(6)]
    gce.run(*names)
    async with started(config_text(gce)) as provider:
        found = await described(provider, *(node_of(one) for one in names))
        assert all(isinstance(one, Instance) for one in found.values())


@pytest.mark.parametrize("has_ids", [True, False])
async def test_many_that_are_gone_do_not_cost_a_request_each(gce: Gce, *, has_ids: bool) -> None:
    """They took all of the quota, and a look had no answer for those that are there."""
    there, gone = [f"n{number}" for number in range(10)], [f"m{number}" for number in range(150)]
    gce.run(*there)
    async with started(config_text(gce)) as provider:
        gce.calls.clear()
        make = node_of if has_ids else node
        found = await described(provider, *(make(one) for one in (*there, *gone)))
        assert all(isinstance(found[one], Instance) for one in there)
        assert all(found[one] == NotFound() for one in gone)
        assert gce.calls.count("compute.instances.aggregatedList") == 2
        assert gce.calls.count("compute.instances.get") <= SAMPLE


@pytest.mark.parametrize("has_ids", [True, False])
async def test_lists_that_lack_what_is_there_prove_no_absence(gce: Gce, *, has_ids: bool) -> None:
    gce.world.lag = 3600.0
    names = [f"n{number}" for number in range(150)]
    gce.run(*names)
    async with started(config_text(gce)) as provider:
        make = node_of if has_ids else node
        found = await described(provider, *map(make, names), make("gone"))
        assert all(isinstance(found[one], Instance | RetryAfter) for one in names)
        assert any(isinstance(found[one], Instance) for one in names)


@pytest.mark.parametrize("warns", [False, True])
async def test_while_a_zone_is_down_nobody_is_absent_by_a_list_alone(
    gce: Gce, *, warns: bool
) -> None:
    """Google may answer 200 with a warning in the place of the zone's instances."""
    gce.run("other", zone=ZONES[1])
    gce.world.down, gce.world.warns = {ZONES[0]}, warns
    gce.fail("compute.instances.get", times=100, target=f"/zones/{ZONES[0]}/")
    names = [f"n{number}" for number in range(60)]
    gone = [node_of(f"m{number}", ZONES[1]) for number in range(60)]
    gce.run(*names)
    async with started(config_text(gce)) as provider:
        found = await described(provider, *map(node_of, names), *gone, node_of("other", ZONES[1]))
        assert isinstance(found["other"], Instance)
        assert all(isinstance(found[one], CloudError) for one in names)
        absent = [one for one in found.values() if one == NotFound()]
        assert 0 < len(absent) <= SAMPLE


def test_a_sample_has_names_of_all_sorts() -> None:
    keys = {machine(zone, f"n{number}") for zone in ("a-b", "a-c") for number in range(50)}
    sample, rest = sampled(keys, 20)
    assert len(sample) == 20
    assert {*sample, *rest} == keys
    assert len(rest) == 80
    assert {one.zone for one in sample} == {"a-b", "a-c"}
    assert sampled(set(), 20) == ([], [])
    assert sampled({machine("a-b", "n")}, 20) == ([machine("a-b", "n")], [])


def test_a_list_is_doubted_for_what_it_lacks_although_it_is_there() -> None:
    here, gone = made(), Throttled("later")
    keys = [machine("a-b", f"n{number}") for number in range(3)]
    assert doubt(dict(zip(keys, (None, gone, None), strict=True))) is None
    assert doubt(dict(zip(keys, (gone, gone, gone), strict=True))) is gone
    why = doubt(dict(zip(keys, (None, gone, here), strict=True)))
    assert isinstance(why, RetryAfter)
    assert "a-b/n2" in str(why)


@pytest.mark.parametrize(
    "message",
    [
        "The resource 'projects/proreus-test' was not found",
        "The resource 'projects/proreus-test/zones/us-central1-a' was not found",
        "The resource 'projects/proreus-test/zones/us-central1-a/instances/n10' was not found",
        "Not found",
    ],
)
async def test_a_404_about_something_else_is_no_absence(gce: Gce, message: str) -> None:
    async with started(config_text(gce)) as provider:
        gce.fail("compute.instances.get", status=404, reason="notFound", message=message)
        found = (await described(provider, node_of("n1")))["n1"]
        assert isinstance(found, CloudError)
        assert "notFound" in str(found)


async def test_a_name_in_two_zones_is_a_conflict(gce: Gce) -> None:
    gce.run("n1", zone=ZONES[0])
    gce.run("n1", zone=ZONES[2])
    found = (await answers(gce, "n1"))["n1"]
    assert isinstance(found, IdentityConflict)
    assert "us-central1-a, us-central1-c" in str(found)


async def test_without_multizone_only_the_own_zone_counts_for_names(gce: Gce) -> None:
    gce.run("n1", zone=ZONES[1])
    gce.run("n2")
    found = await answers(gce, "n1", "n2", extra="multizone = false")
    assert found["n1"] == NotFound()
    assert isinstance(found["n2"], Instance)


@pytest.mark.parametrize(("is_multizone", "lists", "reads"), [(True, 2, SAMPLE), (False, 1, 0)])
async def test_many_names_cost_a_list_and_where_there_are_other_zones_a_look_there(
    gce: Gce, *, is_multizone: bool, lists: int, reads: int
) -> None:
    names = [f"n{number}" for number in range(30)]
    gce.run(*names)
    extra = f"multizone = {str(is_multizone).lower()}"
    async with started(config_text(gce, extra)) as provider:
        gce.calls.clear()
        found = await described(provider, *map(node, names))
        assert all(isinstance(one, Instance) for one in found.values())
        assert gce.calls.count("compute.instances.aggregatedList") == lists
        assert gce.calls.count("compute.instances.get") == reads == len(gce.calls) - lists


async def test_a_name_that_no_instance_can_have_is_absent_without_a_call(gce: Gce) -> None:
    async with started(config_text(gce)) as provider:
        gce.calls.clear()
        assert (await described(provider, node("10.0.0.1")))["10.0.0.1"] == NotFound()
        assert gce.calls == []


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("RUNNING", InstanceState.RUNNING),
        ("STOPPING", InstanceState.RUNNING),
        ("SUSPENDING", InstanceState.RUNNING),
        ("REPAIRING", InstanceState.RUNNING),
        ("TERMINATED", InstanceState.STOPPED),
        ("SUSPENDED", InstanceState.STOPPED),
        ("DEPROVISIONING", InstanceState.TERMINATING),
    ],
)
async def test_states(gce: Gce, status: str, state: InstanceState) -> None:
    gce.run("n1", status=status)
    found = machine_of((await answers(gce, "n1"))["n1"])
    assert found.state is state
    assert found.powered_off is (status == "TERMINATED")


async def test_a_provider_id_of_another_form_or_project_is_refused(gce: Gce) -> None:
    gce.run("n1")
    async with started(config_text(gce)) as provider:
        wrong = node("n1", "aws:///a/i-1")
        other = node("n2", f"gce://other/{ZONES[0]}/n1")
        found = await described(provider, wrong, other)
        assert isinstance(found["n1"], InvalidRequest)
        assert isinstance(found["n2"], InvalidRequest)
        assert "project-id" in str(found["n2"])
        assert provider.instances is not None
        assert provider.instances.owns(wrong) is Ownership.NO
        assert provider.instances.owns(other) is Ownership.NO


async def test_a_quota_that_is_used_up_is_throttling(gce: Gce) -> None:
    gce.run("n1")
    async with started(config_text(gce)) as provider:
        gce.fail("compute.instances.get", times=10, status=403, reason="rateLimitExceeded")
        assert isinstance((await described(provider, node_of("n1")))["n1"], Throttled)


def test_provider_ids() -> None:
    key = machine("europe-west1-b", "node-1")
    assert parsed("gce://p/europe-west1-b/node-1") == ("p", key)
    assert parsed("gce://example.com:p/europe-west1-b/node-1.c.p.internal") == (
        "example.com:p",
        key,
    )
    for wrong in ("gce:///europe-west1-b/n", "gce://p/z/n", "gce://p/a-b/", "gce://p/a-b/n/x", "n"):
        assert parsed(wrong) is None
    assert ownership(node("n"), "p") is Ownership.UNKNOWN
    assert ownership(node("n", "gce://p/a-b/n"), "p") is Ownership.YES


def test_urls() -> None:
    url = "https://www.googleapis.com/compute/v1/projects/p/zones/a-b/instances/n"
    assert (
        path_in(url) == path_in(url.replace("www", "compute")) == "projects/p/zones/a-b/instances/n"
    )
    assert machine_in(url) == machine_in("/zones/a-b/instances/n") == machine("a-b", "n")
    assert machine_in("https://x/projects/p") is None
    assert not path_in("default")


def made(**fields: object) -> Described:
    return msgspec.convert({"name": "node-1", "zone": "a-b", **fields}, Described)


def test_addresses_of_all_interfaces_and_families() -> None:
    nics = [
        {
            "networkIP": "10.0.0.1",
            "accessConfigs": [{"natIP": "1.1.1.1"}, {}],
            "ipv6Address": "fd00::1",
        },
        {
            "ipv6AccessType": "EXTERNAL",
            "ipv6AccessConfigs": [{"externalIpv6": "2600::1"}],
        },
        {"networkIP": "10.1.0.1", "ipv6AccessType": "EXTERNAL"},
    ]
    described = made(networkInterfaces=nics)
    in_order = ["10.0.0.1", "1.1.1.1", "fd00::1", "2600::1", "10.1.0.1"]
    assert [one.address for one in addresses(described, "IPV4_IPV6")] == in_order
    first = [one.address for one in addresses(described, "IPV6")]
    assert first == ["fd00::1", "2600::1", "10.0.0.1", "1.1.1.1", "10.1.0.1"]


def test_a_known_provider_id_stays_as_it_is() -> None:
    known = "gce://p/a-b/node-1.internal"
    assert instance(made(), project="p", stack_type="", known_as=known).provider_id == known


def test_the_tag_of_a_node_is_the_longest_that_its_name_begins_with() -> None:
    assert node_tag(made(tags={"items": ["no", "node", "other-long"]})) == "node"
    assert not node_tag(made(tags={"items": ["x"]}))
    assert not node_tag(made())
