"""The rule about scopes: whose absence from a listing a machine can witness."""

import contextlib
import functools
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from proreus.cloudprovider import CloudError, scope_of
from proreus.kube.objects import Node
from proreus.testing.conformance.answers import Violated, shown
from proreus.testing.conformance.ids import cut_off
from proreus.testing.conformance.machines import owns
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import Site, Started, describe, node

_IO: Final = frozenset(
    (
        "open",
        "os.system",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.sendto",
        "subprocess.Popen",
    )
)
"""Events of `sys.audit` that tell of I/O."""
_MODULE: Final = (".py", ".pyc", ".so")

_seen: Final[ContextVar[list[str] | None]] = ContextVar("seen", default=None)


@rule(owns)
async def scope(site: Site) -> None:
    """`scope` is a text that stays the same, equal for machines that one listing shows.

    Say `scope` from what is known of the Node and the config, without I/O: it is called for every
    Node all the time. Name what is right or wrong as a whole, such as a credential, an endpoint or
    a listing; a scope for each machine leaves none of them a witness, so that no Node is ever
    deleted. For a Node of another cloud return any text, or raise `CloudError`.
    """
    started = await site.start()
    nodes = await site.nodes(started, 2)
    before = [_scope(started, one) for one in nodes]
    await describe(started, nodes[: started.instances.batch_size])
    after = [_scope(started, one) for one in nodes]
    for one, was, now in zip(nodes, before, after, strict=True):
        what = f"for {one.spec.provider_id}, which runs, scope"
        if isinstance(was, CloudError) or isinstance(now, CloudError):
            raise Violated(f"{what} raised {shown(was if isinstance(was, CloudError) else now)}")
        if was != now:
            raise Violated(f"{what} answered {was!r} before describe, and {now!r} after it")
    if len(set(after)) > 1:
        raise Violated(f"two machines that were made together have different scopes: {after}")
    for id_ in ("another-cloud://region/i-0", "", *cut_off(nodes[0].spec.provider_id)):
        _scope(started, node("foreign", id_))


def _scope(started: Started, about: Node) -> str | CloudError:
    """Return what `scope` answers; it must be a text, without I/O and without an error."""
    what = f"for the provider id {about.spec.provider_id!r}, scope"
    with _io() as done:
        try:
            found: object = scope_of(started.instances, about)
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            found = error
    if done:
        raise Violated(f"{what} did I/O: {', '.join(done)}")
    if isinstance(found, Exception) and not isinstance(found, CloudError):
        raise Violated(f"{what} raised {shown(found)}") from found
    if not isinstance(found, str | CloudError):
        raise Violated(f"{what} answered {shown(found)}, which is no str")
    return found


@contextlib.contextmanager
def _io() -> Iterator[list[str]]:
    """Collect the I/O that is done within the block, but for imports of modules."""
    _hook()
    seen: list[str] = []
    mark = _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.reset(mark)


@functools.cache
def _hook() -> None:
    """Install the audit hook once: Python cannot remove one."""
    sys.addaudithook(_note)


def _note(event: str, details: tuple[Any, ...]) -> None:
    if event not in _IO:
        return
    seen = _seen.get()
    if seen is not None and not (event == "open" and str(details[0]).endswith(_MODULE)):
        seen.append(f"{event} {details[0]!r}" if event == "open" else event)


RULES = (scope,)
