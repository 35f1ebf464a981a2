"""The wire's answers are those of the real services, and the recorded ones are these."""

import ast
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proreus.providers import openstack
from proreus.testing.openstack import running

from .octavia_wire import OctaviaWire
from .record import RECORDED, record
from .script import PREFIX, SCRIPT
from .shape import disagreements
from .stage import Play, Stage
from .wire import ROUTER, Wire, served, uuid

TRIES = 3
"""Octavia may be done with its work before it has answered; then a status is another one."""


def constants() -> Iterator[str]:
    """All texts in the provider's code: the fields that it reads are among them."""
    for file in Path(openstack.__path__[0]).rglob("*.py"):
        for one in ast.walk(ast.parse(file.read_text())):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def staged(wire: Wire) -> Stage:
    """The same as on the real services: see `record`."""
    balancing = OctaviaWire(wire)
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
    return Stage("", names | {
        "user": "ccm", "password": "planted-secret", "name": PREFIX, "provider": "proreus",
        "project": "p", "revoked": "revoked", "router": ROUTER, "flavor": uuid(700),
    })  # fmt: skip


async def played() -> dict[str, Any]:
    wire = Wire()
    stage = staged(wire)
    async with served(wire), aiohttp.ClientSession() as http:
        play = Play(Stage(f"{wire.url}/identity/v3", stage.names), http)
        await play.all(SCRIPT)
        return play.answers


async def test_the_wire_answers_as_the_real_services_do() -> None:
    recorded = json.loads(RECORDED.read_text())
    answers = await played()
    assert [*answers] == [step.name for step in SCRIPT]
    assert set(answers) == set(recorded)
    needed = set(constants())
    found = [
        f"{name}{one}"
        for name, answer in answers.items()
        for one in disagreements(answer, recorded[name], {*needed, "body", "headers"})
    ]
    assert not found, "\n".join(["", *found])


async def test_the_real_services_still_answer_as_recorded() -> None:
    if running() is None:
        pytest.skip("no OpenStack runs on this machine: make openstack-up starts one")
    recorded = json.loads(RECORDED.read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        for left in reversed(range(TRIES)):
            answers = json.loads(json.dumps(await record()))
            if answers == recorded or not left:
                break
    differing = [name for name in recorded if answers.get(name) != recorded[name]]
    assert {name: answers.get(name) for name in differing} == {
        name: recorded[name] for name in differing
    }
    assert set(answers) == set(recorded)
