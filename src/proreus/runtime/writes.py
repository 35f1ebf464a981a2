"""Write a node in at most two patches: merges of one version, or JSON Patches right in any race.

A merge may go only with the version that it was made from: if nobody has written since, it has the
effect that was planned, and else the answer is 409 and nothing is written. The status goes with the
version that the cache holds. It makes a new version, which its answer names, and the main merge
goes with that one: it holds what the cache held and the new status, nothing else. The answer to a
patch without a version names a version of which nothing of the kind is known, since others may have
written before it; no merge follows on it.

After a 409 the same is done by patches that test what they rely on, whatever the version. Without
an answer the outcome is not known, and nothing more is sent: the cache will tell.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from proreus.kube.client import Written
from proreus.kube.errors import Conflict
from proreus.kube.patch import Edit, Patch, at_version
from proreus.kube.requests import NODES, Resource
from proreus.runtime.controller import contained


class Patcher(Protocol):
    """The part of a client that the writing of nodes needs."""

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        namespace: str = "",
        subresource: str = "",
    ) -> Written:
        """Change an object or its subresource."""


class WriteResult(msgspec.Struct, frozen=True):
    """What came of a node's patches: the last write that succeeded, and the error that ended it."""

    written: Written | None = None
    error: Exception | None = None


async def write_node(client: Patcher, name: str, *, status: Patch, main: Edit) -> WriteResult:
    """Write a node's status, then the main part; a false patch is left out.

    Both were made from one version of the node, `main.version`.
    """
    # A status that no merge follows on needs no version: it is right in any.
    version = main.version if main.merge else ""
    written: Written | None = None
    if status:
        send = partial(client.patch, NODES, name, subresource="status")
        answer = await _answer(send, status, status, version)
        if isinstance(answer, Exception):
            return WriteResult(error=answer)
        written, version = answer
    if main:
        answer = await _answer(partial(client.patch, NODES, name), main.merge, main.tested, version)
        if isinstance(answer, Exception):
            return WriteResult(written, answer)
        written, _ = answer
    return WriteResult(written)


async def _answer(
    send: Callable[[Patch], Awaitable[Written]], merge: Patch, tested: Patch, version: str
) -> tuple[Written, str] | Exception:
    """Send the merge with the version, if there is one; if that came too late, the other patch.

    Returns:
        The result of the write, and the version that the next merge may go with; "" if there is
            none.
    """
    if version:
        answer = await contained(send(at_version(merge, version)))
        if isinstance(answer, Written):
            return answer, str(answer.resource_version)
        if not _is_stale(answer):
            return answer
    answer = await contained(send(tested))
    return (answer, "") if isinstance(answer, Written) else answer


def _is_stale(error: Exception) -> bool:
    """Tell whether nothing was written because the object has another version.

    Other conflicts, such as another uid under the name, need another plan.
    """
    return isinstance(error, Conflict) and error.code == HTTPStatus.CONFLICT
