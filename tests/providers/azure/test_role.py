"""The custom role: made from the table of operations, enough for all tests, and no more than that.

That it is enough shows in every test here: the emulator refuses what it does not allow.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from proreus.cloudprovider import CloudError
from proreus.providers.azure import operations
from proreus.providers.azure.operations import OPERATIONS, Operation

from .balancing import answers, machines, service
from .emulator.server import Emulator
from .site import ROLE, node, started

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "proreus" / "providers" / "azure"


def test_the_role_is_what_the_table_makes_today() -> None:
    command = [sys.executable, str(ROOT / "tools" / "azure_role.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (ROOT / "deploy" / "azure" / "role.json").read_text()


def test_the_table_has_the_operations_that_the_code_names_and_no_others() -> None:
    named = {
        found.attr
        for file in SOURCE.rglob("*.py")
        for found in ast.walk(ast.parse(file.read_text()))
        if isinstance(found, ast.Attribute)
        and isinstance(found.value, ast.Name)
        and found.value.id == "operations"
    }
    made = {key for key, one in vars(operations).items() if isinstance(one, Operation)}
    listed = {one.name for found in OPERATIONS.values() for one in found}
    assert named == made
    assert listed == {getattr(operations, key).name for key in made}


async def test_azure_refuses_what_the_role_does_not_allow(azure: Emulator) -> None:
    nodes = machines(azure)
    join = "Microsoft.Network/publicIPAddresses/join/action"
    assert azure.actions is not None
    azure.actions.remove(join)
    async with started(azure) as provider:
        found = (await answers(provider, nodes, service()))["web-1"]
        assert isinstance(found, CloudError)
        assert join in str(found)
        azure.actions.clear()
        assert provider.instances is not None
        with pytest.raises(CloudError, match="AuthorizationFailed"):
            await provider.instances.describe([node("node-0")])


def test_the_role_names_no_wildcard() -> None:
    assert not [one for one in ROLE["Actions"] if "*" in one]
