"""The command `proreus demo console`: does what users and the cloud's owner do in a real cluster.

It stands for the cloud's own command line, and for kubectl where that is not installed.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proreus.kube import config as kubeconfig
from proreus.kube.client import Client
from proreus.kube.errors import AlreadyExists, ConfigError, KubeError
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES, Resource
from proreus.testing.demo.node_ports import address_of
from proreus.testing.demo.stage import ZONES, machines
from proreus.testing.simulated import Admin, AdminError, Instance

COMMAND = "console"
"""The word that follows `proreus demo` on the command line."""
CLOUD_VARIABLE = "DEMO_CLOUD"
"""Environment variable with the URL of the simulated cloud."""

_KINDS: dict[str, Resource[Any]] = {one.kind.lower(): one for one in (NODES, SERVICES)}
_MOST_MACHINES = 200
_Machine = Callable[[Admin, Instance], Awaitable[None]]
_VERBS: dict[str, tuple[str, _Machine]] = {
    "stop": ("shut machines down", lambda cloud, one: cloud.stop(one.id)),
    "start": ("start machines that were stopped", lambda cloud, one: cloud.start(one.id)),
    "terminate": ("end machines for good", lambda cloud, one: cloud.delete(one.id)),
}


class ConsoleError(Exception):
    """The error that the console cannot do what the command line asks."""


def main(arguments: Sequence[str]) -> int:
    """Run one command of the console; return 1 if it failed."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_run(options))
    except ConfigError as error:
        problems = error.problems
    except (ConsoleError, AdminError, KubeError, OSError) as error:
        problems = (str(error),)
    else:
        return 0
    for line in problems:
        print(f"console: {line}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"proreus demo {COMMAND}",
        description="Do what users and the cloud's owner do, in a cluster of the demo.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("machines", help="list machines")
    add = commands.add_parser("launch", help="make a machine; its kubelet joins the cluster")
    add.add_argument("name")
    add.add_argument("--zone", choices=ZONES, default=ZONES[0])
    for verb, (text, _) in _VERBS.items():
        commands.add_parser(verb, help=text).add_argument("names", nargs="+", metavar="name")
    apply = commands.add_parser("apply", help="create or change Nodes and Services")
    apply.add_argument("file", type=Path, help="YAML")
    delete = commands.add_parser("delete", help="delete Nodes or Services")
    delete.add_argument("kind", choices=_KINDS)
    delete.add_argument("names", nargs="+", metavar="name")
    return parser


async def _run(options: argparse.Namespace) -> None:
    if options.command == "apply":
        objects = _objects(options.file)
        async with Client(kubeconfig.load()) as client:
            await _apply(client, objects)
        return
    if options.command == "delete":
        resource = _KINDS[options.kind]
        async with Client(kubeconfig.load()) as client:
            for name in options.names:
                await client.delete(resource, name, namespace=_namespace(resource))
                print(f"{options.kind}/{name} is deleted")
        return
    endpoint = os.environ.get(CLOUD_VARIABLE)
    if not endpoint:
        raise ConsoleError(f"{CLOUD_VARIABLE} is not set: take it from what `proreus demo` printed")
    async with Admin(endpoint) as cloud:
        await _in_cloud(cloud, endpoint, options)


async def _in_cloud(cloud: Admin, endpoint: str, options: argparse.Namespace) -> None:
    there = await cloud.instances()
    if options.command == "machines":
        for one in there:
            print(f"{one.name:12}  {one.state:10}  {one.zone:8}  {one.id}  {address_of(one)}")
        return
    named = {one.name: one for one in there if one.state != "terminated"}
    if options.command == "launch":
        if options.name in named:
            raise ConsoleError(f"there is a machine {options.name} already")
        used = {address_of(one) for one in there}
        free = next(
            machine
            for machine in machines(endpoint, _MOST_MACHINES)
            if address_of(machine) not in used
        )
        wanted = msgspec.structs.replace(free, name=options.name, zone=options.zone)
        done = await cloud.create([wanted])
    else:
        if missing := set(options.names) - named.keys():
            raise ConsoleError(f"there is no machine {', '.join(sorted(missing))}")
        done = tuple(named[name] for name in options.names)
        await asyncio.gather(*(_VERBS[options.command][1](cloud, one) for one in done))
    for one in done:
        print(f"{options.command}: {one.name} ({one.id})")


def _objects(file: Path) -> list[tuple[Resource[Any], dict[str, Any]]]:
    try:
        documents = [one for one in yaml.safe_load_all(file.read_text()) if one]
    except yaml.YAMLError as error:
        raise ConsoleError(f"{file}: {error}") from error
    kinds = [
        str(document.get("kind", "")).lower()
        for document in documents
        if isinstance(document, dict)
    ]
    if len(kinds) < len(documents) or not set(kinds) <= _KINDS.keys():
        raise ConsoleError(f"{file}: each document must be of kind Node or Service")
    return [(_KINDS[kind], one) for kind, one in zip(kinds, documents, strict=True)]


async def _apply(client: Client, objects: list[tuple[Resource[Any], dict[str, Any]]]) -> None:
    for resource, body in objects:
        name = (body.get("metadata") or {}).get("name", "")
        try:
            await client.create(resource, body, namespace=_namespace(resource))
            done = "is created"
        except AlreadyExists:
            patch = Patch(PatchType.STRATEGIC, body)
            await client.patch(resource, name, patch, namespace=_namespace(resource))
            done = "is changed"
        print(f"{resource.kind.lower()}/{name} {done}")


def _namespace(resource: Resource[Any]) -> str:
    return "default" if resource.namespaced else ""
