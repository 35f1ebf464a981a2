"""The role: made from the table of commands, enough for all tests, and no more than that.

That it is enough shows in every test here: the emulator refuses what it does not allow.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from proreus.cloudprovider.errors import Unauthenticated
from proreus.providers.cloudstack import operations
from proreus.providers.cloudstack.operations import ALL

from .emulator.server import APIS, ROLE, Emulator, role
from .site import describe, node, started

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "proreus" / "providers" / "cloudstack"


def test_the_file_is_what_the_tool_prints_and_denies_the_rest() -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "tools" / "cloudstack_role.py"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert ROLE.read_text() == told.stdout
    assert told.stdout.splitlines()[-1].startswith("*,deny,")
    assert role() == ALL


def test_the_table_has_exactly_the_commands_that_the_code_names() -> None:
    named = {
        one.value
        for file in SOURCE.rglob("*.py")
        if file.name != Path(operations.__file__).name
        for one in ast.walk(ast.parse(file.read_text()))
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value in APIS
    }
    assert named == ALL


async def test_a_command_that_the_role_lacks_is_refused_and_proves_nothing(
    emulator: Emulator,
) -> None:
    emulator.rights = ALL - {"listVirtualMachines"}
    async with started(emulator) as provider:
        with pytest.raises(Unauthenticated, match="listVirtualMachines"):
            await describe(provider, node("node-1"))
