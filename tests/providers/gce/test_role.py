"""The IAM role: made from the table of operations, enough for all that is done, and no more."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import yaml

from proreus.providers.gce.operations import OPERATIONS, permissions
from proreus.providers.gce.routes import GCERoutes

from .cloud import spec
from .cloud.permissions import permissions as needed_by
from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .lb_site import SECOND, balancing
from .site import CLUSTER, config_text, node, started
from .test_backend_services import BACKEND, INTERNAL, SECTIONS
from .test_subsets import SECTIONS as SUBSETS

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "proreus" / "providers" / "gce"
ROLE = ROOT / "deploy" / "gce" / "role.yaml"


def tool() -> ModuleType:
    found = importlib.util.spec_from_file_location("gce_role", ROOT / "tools" / "gce_role.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def literals() -> Iterator[str]:
    """All texts in the provider's source that are no docstring of the table itself."""
    for file in SOURCE.rglob("*.py"):
        if file.name == "operations.py":
            continue
        for one in ast.walk(ast.parse(file.read_text())):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def test_the_role_in_the_repository_is_what_the_tool_makes() -> None:
    assert yaml.safe_load(ROLE.read_text()) == tool().role()


def test_every_operation_is_one_of_google_s_with_its_http_method() -> None:
    known = {one.id.removeprefix("compute."): one.method for one in spec.methods()}
    assert {name: one.method for name, one in OPERATIONS.items()}.items() <= known.items()


def test_every_operation_is_called_somewhere() -> None:
    """By its name, or by a kind of part and one of the verbs that all kinds have."""
    texts = set(literals())
    general = {"delete", "get", "insert", "update"}
    verbs = {"addInstance", "removeInstance", "addInstances", "removeInstances"}
    verbs |= {"addHealthCheck", "removeHealthCheck", "add", "remove"}
    verbs |= {"aggregatedList", "attachNetworkEndpoints", "detachNetworkEndpoints"}
    verbs |= {"listNetworkEndpoints"}
    for name in OPERATIONS:
        collection, verb = name.split(".")
        is_wait = verb == "wait" and collection in texts | {"globalOperations"}
        assert name in texts or verb in general | verbs or is_wait, name


def test_permissions_have_the_form_of_iam() -> None:
    assert all(re.fullmatch(r"compute\.[A-Za-z]+\.[A-Za-z]+", one) for one in permissions())
    assert list(permissions()) == sorted(set(permissions()))


def test_each_operation_has_the_permissions_that_google_s_reference_names() -> None:
    methods = {one.id.removeprefix("compute."): one for one in spec.methods()}
    for name, operation in OPERATIONS.items():
        has = {f"compute.{one}" for one in operation.permissions}
        assert needed_by(methods[name], None) <= has, name


async def test_the_role_is_enough_for_all_that_is_done(gce: Gce) -> None:
    gce.granted = frozenset(permissions())
    async with balancing(gce, "subnetwork-name = outside", SECTIONS) as site:
        local = {"external_traffic_policy": "Local", "health_check_node_port": 32000}
        for annotations in ({}, INTERNAL, BACKEND):
            await site.make(annotations=annotations)
            await site.make((80, "TCP"), (81, "TCP"), annotations=annotations)
            await site.make(annotations=annotations, **local)
            await site.make(annotations=annotations, session_affinity="ClientIP")
            await site.make((80, "UDP"), annotations=annotations, **SECOND)
            gce.run("node-3")
            await site.delete()
            await site.delete(**SECOND)
        assert site.left() == {}


async def test_the_role_is_enough_for_subsets(gce: Gce) -> None:
    gce.granted = frozenset(permissions())
    async with balancing(gce, "subnetwork-name = default", SUBSETS) as site:
        await site.make(annotations=INTERNAL)
        await site.make((80, "UDP"), annotations=INTERNAL)
        site.nodes.pop()
        await site.make(annotations=INTERNAL)
        await site.delete()
        assert site.left() == {}


async def test_the_role_is_enough_for_nodes_routes_and_blocks(gce: Gce) -> None:
    gce.granted = frozenset(permissions())
    gce.run(*(f"n{number}" for number in range(9)))
    async with started(config_text(gce, "secondary-range-name = pods")) as provider:
        assert provider.instances is not None
        assert provider.pod_cidrs is not None
        assert provider.ssh_keys is not None
        assert isinstance(provider.routes, GCERoutes)
        nodes = [node(f"n{number}", f"gce://{PROJECT}/{ZONES[0]}/n{number}") for number in range(9)]
        await provider.instances.describe(nodes)
        await provider.pod_cidrs.assign(nodes[0], ("10.40.1.0/24",))
        await provider.ssh_keys.add_to_all_instances("me", "ssh-rsa AAAA")
        assert await provider.routes.list(CLUSTER, nodes) == []


async def test_what_is_not_granted_is_refused(gce: Gce) -> None:
    gce.granted = frozenset(permissions()) - {"compute.targetPools.create"}
    async with balancing(gce) as site:
        answer = await site.answer(site.desired(site.service()))
        assert "compute.targetPools.create" in str(answer)
