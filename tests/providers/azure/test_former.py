"""What is left over of a former Service goes, and takes nothing from the next one of its name."""

import msgspec

from proreus.cloudprovider import CloudError
from proreus.kube.objects import Service

from .balancing import (
    UID,
    addresses,
    answers,
    delete,
    ensure,
    machines,
    name_of,
    parts,
    service,
)
from .emulator.server import Emulator, Fault
from .emulator.store import network
from .site import started
from .test_additional import HTTPS, known

USERS = "k8s-azure-service"


def former(one: Service) -> Service:
    """The one that had the name before: it is gone from the API."""
    return msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, uid=UID.format(77))
    )


async def test_a_public_ip_that_is_in_no_load_balancer_yet_stays_the_next_one_s(
    azure: Emulator,
) -> None:
    """`--delete-leaks-after` deletes what is left over while there is a Service of the name."""
    nodes = machines(azure)
    one = service()
    async with started(azure, known(nodes, [one])) as provider:
        azure.faults.append(Fault("PUT", "loadBalancers", status=400, code="BadRequest"))
        found = await answers(provider, nodes, one)
        assert isinstance(found["web-1"], CloudError)
        (name,) = addresses(azure)
        assert name_of(one.metadata.uid) in name
        await delete(provider, former(one), bare=True)
        assert list(addresses(azure)) == [name]
        await ensure(provider, nodes, one)
        await delete(provider, former(one), bare=True)
        assert list(addresses(azure)) == [name]


async def test_the_next_one_stays_a_user_of_an_address_that_it_shares(azure: Emulator) -> None:
    nodes = machines(azure)
    owner = service(2)
    async with started(azure, known(nodes, [owner])) as provider:
        await ensure(provider, nodes, owner)
    (name,) = addresses(azure)
    one = service(1, {"azure-pip-name": name}, HTTPS)
    async with started(azure, known(nodes, [owner, one])) as provider:
        await ensure(provider, nodes, one)
        assert addresses(azure)[name]["tags"][USERS] == "shop/web-2,shop/web-1"
        await delete(provider, former(one), bare=True)
        assert addresses(azure)[name]["tags"][USERS] == "shop/web-2,shop/web-1"


async def test_what_is_left_over_goes_itself(azure: Emulator) -> None:
    nodes = machines(azure)
    one = service()
    async with started(azure, known(nodes, [one])) as provider:
        await ensure(provider, nodes, former(one))
        await ensure(provider, nodes, one)
        assert len(addresses(azure)) == 2, "what the former one had is in use"
        await delete(provider, former(one), bare=True)
        (name,) = addresses(azure)
        assert name_of(one.metadata.uid) in name
        assert len(parts(azure, "loadBalancingRules")) == 1


async def test_a_public_ip_that_was_left_over_and_that_the_next_one_names_is_its_own(
    azure: Emulator,
) -> None:
    """Azure lets it be deleted if nothing has it, as after its load balancer was deleted by hand."""
    nodes, one = machines(azure), service()
    async with started(azure, known(nodes, [one])) as provider:
        shown = (await ensure(provider, nodes, former(one)))["web-1"]
    (name,) = addresses(azure)
    one = service(annotations={"azure-pip-name": name}, ingress=shown)
    async with started(azure, known(nodes, [one])) as provider:
        azure.store.delete(network("loadBalancers", "kubernetes"))
        azure.store.of[network("publicIPAddresses", name).lower()]["properties"].pop(
            "ipConfiguration", None
        )
        await delete(provider, former(one), bare=True)
        assert list(addresses(azure)) == [name]
