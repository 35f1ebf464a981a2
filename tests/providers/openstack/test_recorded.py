"""The wire's answers are those of the real services, and the recorded ones are these."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import Refused
from proreus.providers import openstack
from proreus.providers.openstack.octavia.octavia import is_immutable

from .octavia_wire import OctaviaWire
from .record import RECORDED
from .script import PREFIX, SCRIPT
from .shape import disagreements
from .stage import Play, Stage
from .wire import ROUTER, Wire, error_of, served, uuid

REAL: dict[str, Any] = json.loads(RECORDED.read_text())
"""The answers of the real services."""


def constants() -> Iterator[str]:
    """All texts in the provider's code: the fields that it reads are among them."""
    for file in Path(openstack.__path__[0]).rglob("*.py"):
        for one in ast.walk(ast.parse(file.read_text())):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def staged(wire: Wire) -> dict[str, str]:
    """The same as on the real services, by the same names: see `record`."""
    balancing = OctaviaWire(wire)
    balancing.groups.most = 1
    wire.more.append(balancing.routes)
    network, public, subnets = uuid(600), uuid(601), (uuid(500), uuid(501))
    wire.external, wire.networks = {public: "public"}, {network: "private"}
    wire.flavors = {uuid(700): "m1.k8s"}
    balancing.most_balancers = balancing.most_floating = 2
    names = {"network": network, "public": public, "public_subnet": uuid(502)}
    for version, subnet, cidr in ((4, subnets[0], "10.0.0.0/8"), (6, subnets[1], "2001:db8::/64")):
        balancing.subnets[subnet] = {
            "id": subnet, "ip_version": version, "network_id": network, "cidr": cidr,
        }  # fmt: skip
        names[f"subnet{version}"] = subnet
    balancing.hidden_subnets.add(names["public_subnet"])
    for n in (1, 2, 3):
        address, address6 = f"10.0.0.{n}", f"2001:db8::{n}"
        id_ = wire.add(
            n, f"{PREFIX}-{n}", flavor={"id": uuid(700)}, status="SHUTOFF" if n == 3 else "ACTIVE",
            addresses={"private": [
                {"addr": one, "version": version, "OS-EXT-IPS:type": "fixed"}
                for one, version in ((address, 4), (address6, 6))
            ]},
        )  # fmt: skip
        fixed = [
            {"subnet_id": subnet, "ip_address": one}
            for subnet, one in zip(subnets, (address, address6), strict=True)
        ]
        wire.ports[-1] |= {"id": uuid(800 + n), "fixed_ips": fixed, "network_id": network}
        names |= {f"server{n}": id_, f"port{n}": uuid(800 + n), f"address{n}": address}
    return names | {
        "user": "ccm", "password": "planted-secret", "own": "own", "provider": "proreus",
        "project": "p", "revoked": "revoked", "router": ROUTER, "flavor": uuid(700),
    }  # fmt: skip


async def played(wire: Wire) -> dict[str, Any]:
    names = staged(wire)
    async with served(wire), aiohttp.ClientSession() as http:
        play = Play(Stage(f"{wire.url}/identity/v3", names), http)
        await play.all(SCRIPT)
        return play.answers


async def test_the_wire_answers_as_the_real_services_do() -> None:
    wire = Wire()
    answers = await played(wire)
    assert [*answers] == [step.name for step in SCRIPT]
    assert set(answers) == set(REAL)
    needed = {*constants(), "body", "headers"}
    found = [
        f"{name}{one}"
        for name, answer in answers.items()
        for one in disagreements(answer, REAL[name], needed)
    ]
    assert not found, "\n".join(["", *found])
    # Cinder is not among the real services, and the provider asks for monitors by their ids.
    assert wire.operations - set(wire.asked) == {"volume_get", "healthmonitor_list"}


def said_by(name: str) -> CloudError:
    """The provider's error for a recorded answer."""
    body = json.dumps(REAL[name]["body"]).replace('"= ', '"')
    return error_of(REAL[name]["status"], body)


def test_every_error_of_the_real_services_is_reported_with_its_reason() -> None:
    errors = {name: said_by(name) for name in REAL if REAL[name]["status"] >= 300}
    assert len(errors) > 60
    assert [name for name, error in errors.items() if "no reason given" in str(error)] == []
    refused = {type(error) for name, error in errors.items() if "quota" in name}
    assert refused == {Refused}


def test_what_octavia_works_on_is_distinguished_from_other_conflicts() -> None:
    conflicts = {name for name in REAL if REAL[name]["status"] == 409}
    found = {name for name in conflicts if is_immutable(cast("Refused", said_by(name)))}
    assert found == {step.name for step in SCRIPT if step.busy}
    assert len(found) == 3
    assert conflicts - found
