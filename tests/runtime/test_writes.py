"""Which patches are sent for a node, in which form, and what is sent after each answer."""

from collections.abc import Sequence
from typing import Any

import pytest

from proreus.kube import patch
from proreus.kube.client import Written
from proreus.kube.errors import Conflict, Invalid, KubeError, ServerError, Unreachable
from proreus.kube.objects import NodeAddress, Taint, WholeTaints
from proreus.kube.patch import Edit, Patch, PatchType
from proreus.kube.requests import NODES, Resource
from proreus.runtime.writes import WriteResult, write_node
from proreus.testing import objects

OURS = Taint("ours", "NoSchedule")
THEIRS = Taint("theirs", "NoSchedule", "x")
STALE = Conflict(409, "the object has been modified", reason="Conflict")
STATUS = patch.status("u", addresses=(NodeAddress("Hostname", "n"),))
NOTHING = patch.status("u")


def edit(taints: tuple[Taint, ...] = WholeTaints((OURS, THEIRS)), version: str = "7") -> Edit:
    """Takes our taint away."""
    node = objects.node("n", uid="u", taints=taints, resource_version=version)
    return patch.node_edit(node, new_taints=(THEIRS,), new_labels={"a": "b"}, provider_id="p")


class Server:
    """Answers in turn, each write by a version of its own, and notes what is sent."""

    def __init__(self, *answers: KubeError | None) -> None:
        self.sent: list[str] = []
        self._answers = iter(answers)
        self._version = 100

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        namespace: str = "",
        subresource: str = "",
    ) -> Written:
        assert (resource, name, namespace) == (NODES, "n", "")
        self.sent.append(f"{subresource or 'main'} {form(patch)}")
        if error := next(self._answers, None):
            raise error
        self._version += 1
        return Written("u", self._version)


def form(sent: Patch) -> str:
    if sent.type is PatchType.JSON:
        return "tested"
    version = sent.body["metadata"].get("resourceVersion")
    return f"merge {version}" if version else "merge"


WHOLE = edit()
PARTLY = edit((OURS, THEIRS))
UNVERSIONED = edit(version="")
EMPTY = patch.node_edit(objects.node("n"))


@pytest.mark.parametrize(
    ("status", "main", "answers", "sent"),
    [
        (STATUS, WHOLE, [], ["status merge 7", "main merge 101"]),
        (NOTHING, WHOLE, [], ["main merge 7"]),
        (STATUS, EMPTY, [], ["status merge"]),
        (NOTHING, EMPTY, [], []),
        # A taint may have a field that is not known: the list is not written.
        (STATUS, PARTLY, [], ["status merge", "main tested"]),
        (NOTHING, PARTLY, [], ["main tested"]),
        (STATUS, UNVERSIONED, [], ["status merge", "main tested"]),
        # Somebody was quicker: the version of the second answer is of no use.
        (STATUS, WHOLE, [STALE], ["status merge 7", "status merge", "main tested"]),
        (STATUS, WHOLE, [None, STALE], ["status merge 7", "main merge 101", "main tested"]),
        (NOTHING, WHOLE, [STALE], ["main merge 7", "main tested"]),
    ],
)
async def test_merges_go_with_a_version_that_is_known_and_tested_patches_without(
    status: Patch, main: Edit, answers: Sequence[KubeError | None], sent: Sequence[str]
) -> None:
    server = Server(*answers)

    result = await write_node(server, "n", status=status, main=main)

    assert server.sent == sent
    assert result == (WriteResult(Written("u", server._version)) if sent else WriteResult())


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no answer", sent=True),
        Unreachable("no connection", sent=False),
        ServerError(500, "broken"),
        Conflict(422, "another uid"),
        Invalid(422, "not valid"),
    ],
    ids=lambda error: f"{type(error).__name__} {error}",
)
@pytest.mark.parametrize(
    ("before", "sent"),
    [
        ([], ["status merge 7"]),
        ([None], ["status merge 7", "main merge 101"]),
        ([STALE], ["status merge 7", "status merge"]),
        ([STALE, None], ["status merge 7", "status merge", "main tested"]),
        ([None, STALE], ["status merge 7", "main merge 101", "main tested"]),
    ],
)
async def test_any_other_error_ends_the_write_and_nothing_is_sent_in_its_place(
    before: Sequence[KubeError | None], sent: Sequence[str], error: KubeError
) -> None:
    server = Server(*before, error)

    result = await write_node(server, "n", status=STATUS, main=WHOLE)

    assert server.sent == sent
    assert result.error is error
    has_written = None in before
    assert result.written == (Written("u", 101) if has_written else None)


async def test_a_tested_patch_that_comes_too_late_ends_the_write() -> None:
    late = Conflict(422, "a test failed")
    server = Server(None, STALE, late)

    result = await write_node(server, "n", status=STATUS, main=WHOLE)

    assert result == WriteResult(Written("u", 101), late)


def test_the_merge_sets_the_whole_list_of_taints_and_the_tested_patch_only_what_goes() -> None:
    assert WHOLE.merge.body == {
        "metadata": {"uid": "u", "labels": {"a": "b"}},
        "spec": {
            "providerID": "p",
            "taints": [{"key": "theirs", "effect": "NoSchedule", "value": "x"}],
        },
    }
    assert [op.path for op in WHOLE.tested.body if op.op == "remove"] == ["/spec/taints/0"]
    assert patch.at_version(WHOLE.merge, "9").body["metadata"] == {
        "uid": "u",
        "labels": {"a": "b"},
        "resourceVersion": "9",
    }
    assert "resourceVersion" not in WHOLE.merge.body["metadata"]
