"""The policy: made from the table of operations, enough for all tests, and no more than that.

That it is enough shows in every test here: the emulator refuses what it does not allow.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from proreus.cloudprovider.errors import Unauthenticated
from proreus.providers.baidu import operations
from proreus.providers.baidu.operations import OPERATIONS

from .emulator.operations import DO
from .emulator.server import POLICY, Emulator, policy
from .site import describe, node, started

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "proreus" / "providers" / "baidu"


def test_the_file_is_what_the_tool_prints() -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "tools" / "baidu_policy.py"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert POLICY.read_text() == told.stdout
    assert policy() == {(one.product, one.right) for one in OPERATIONS.values()}


def test_the_table_has_exactly_the_operations_that_the_code_names() -> None:
    named = {
        one.value
        for file in SOURCE.rglob("*.py")
        if file.name != Path(operations.__file__).name
        for one in ast.walk(ast.parse(file.read_text()))
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value in DO
    }
    of_listeners = {name for name in OPERATIONS if name.endswith("Listener")}
    assert named | of_listeners == OPERATIONS.keys()


async def test_what_the_policy_lacks_is_refused_and_proves_nothing(emulator: Emulator) -> None:
    emulator.rights = policy() - {("bce:bcc", "VM_READ")}
    async with started(emulator) as provider:
        with pytest.raises(Unauthenticated, match="listInstances"):
            await describe(provider, node("node-1"))
