"""Rules about a cloud that fails, throttles, answers nonsense or not at all."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

from proreus.cloudprovider import CloudError, Done, Ensured, NotFound, Outcome, Throttled
from proreus.kube.objects import Node
from proreus.testing.conformance.answers import Violated, outcome, shown
from proreus.testing.conformance.fixture import Answer, NotOffered
from proreus.testing.conformance.interruption import Interruption, throttling
from proreus.testing.conformance.machines import capabilities, machine_found
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import Site, Started, describe, node
from proreus.testing.conformance.wire import Wire

_STATUSES = (400, 401, 403, 408, 409, 418, 500, 502, 503)
_HTML = {"Content-Type": "text/html"}
_JSON = {"Content-Type": "application/json"}
_ODD = (
    Answer(200, b"<html>Log in</html>", _HTML),
    Answer(200, b"", _JSON),
    Answer(200, b"{}", _JSON),
    Answer(200, b"null", _JSON),
    Answer(204),
    Answer(404, b"<html>no such page</html>", _HTML),
    Answer(404),
)
_MOST_CALLS = 20
_LONG = 100.0
_POLL = 0.02
_SHORT = 1.0
_STARTS = 10
_UNANSWERED = {Outcome.TIMEOUT, Outcome.ERROR}

Verb = Callable[[Started], Awaitable[Mapping[str, object]]]


@rule(machine_found)
async def errors_not_absence(site: Site) -> None:
    """A call that fails is never NotFound.

    Let errors through as `CloudError`. Only the cloud's own "there is no such machine" is
    `NotFound`: a Node whose machine is taken for gone is deleted.
    """
    started = await site.start()
    nodes = await site.nodes(started, 2)
    is_tried = False
    for batch in _ways(nodes[: started.instances.batch_size]):
        for after_effect in (False, True):
            for at in range(1, _MOST_CALLS + 1):
                cut = Interruption(at, after_effect=after_effect, for_good=False)
                broken = await site.start(hooks=cut)
                _no_absence(str(cut), await outcome(describe(broken, batch)))
                if not cut.reached:
                    break
                is_tried = True
    if not site.cloud.endpoint and not is_tried:
        raise NotOffered("describe makes no call by context.call, and there is no endpoint")
    if not site.cloud.endpoint:
        return
    for status in _STATUSES:
        await _answered(site, nodes, Answer(status, b"{}", _JSON))
    wire = await site.wire()
    started = await site.start(wire=wire)
    wire.cut()
    for batch in _ways(nodes[: started.instances.batch_size]):
        _no_absence("connections are cut", await outcome(describe(started, batch)))


@rule(machine_found, wants=("endpoint",))
async def odd_answers_not_absence(site: Site) -> None:
    """An answer that is not the cloud's own is never NotFound, and is a `CloudError`.

    A proxy or a wrong endpoint answers 200 with a login page, or 404 to everything. Check the
    shape of what you decode, and take a 404 for absence only if it has the cloud's error body.
    """
    started = await site.start()
    nodes = await site.nodes(started, 2)
    for answer in _ODD:
        await _answered(site, nodes, answer)


async def _answered(site: Site, nodes: Sequence[Node], answer: Answer) -> None:
    wire = await site.wire()
    started = await site.start(wire=wire)
    wire.answer(answer)
    text = f"the answer was {answer.status} {answer.body!r}"
    for batch in _ways(nodes[: started.instances.batch_size]):
        found = await outcome(describe(started, batch))
        _no_absence(text, found)
        if isinstance(found, Exception) and not isinstance(found, CloudError):
            raise Violated(f"{text}, and describe raised {shown(found)}, which is no CloudError")


def _ways(nodes: Sequence[Node]) -> Sequence[Sequence[Node]]:
    """Return Nodes to look the machines up by id, and Nodes to look them up by name."""
    return nodes, [node(one.metadata.name) for one in nodes]


def _no_absence(when: str, found: object) -> None:
    answers = found if isinstance(found, Mapping) else {}
    absent = [name for name, answer in answers.items() if isinstance(answer, NotFound)]
    if absent:
        raise Violated(f"{when}, and describe answered NotFound for {', '.join(absent)}")


@rule(capabilities)
async def throttled(site: Site) -> None:
    """A refusal for quota is `Throttled`, with the seconds that the cloud asks to wait.

    Raise `Throttled(…, after=seconds)` inside `context.call`, from Retry-After or its like, and
    do not wrap it in another error: the framework then waits, and all calls slow down.
    """
    for verb in await _verbs(site):
        await _check_throttled(verb, await site.start(hooks=throttling()))
        if site.cloud.endpoint:
            wire = await site.wire()
            shorter = min(site.cloud.timeout, _LONG / 2)  # or the call itself waits that long
            started = await site.start(wire=wire, request_timeout=shorter)
            wire.answer(site.cloud.throttled)
            await _check_throttled(verb, started)


async def _check_throttled(verb: Verb, started: Started) -> None:
    found = await outcome(verb(started))
    for answer in [found] if not isinstance(found, Mapping) else found.values():
        if not isinstance(answer, Throttled):
            raise Violated(
                "when the cloud refused with its answer for throttling, the provider "
                f"answered {shown(answer)}"
            )
        if answer.after is None or not _LONG < answer.after <= _LONG + 20:
            raise Violated(f"the cloud asked to wait 120 s; Throttled.after is {answer.after}")


@rule(capabilities, wants=("endpoint",))
async def black_hole(site: Site) -> None:
    """A cloud that never answers holds up a verb for a limited time, and leaves no thread behind.

    Pass `deadline=` to `context.call`, and give a blocking SDK time-outs for connecting and for
    reading that are shorter: nobody can stop a thread. Run it with `blocking=True`. Let the
    fixture's `provider` configure them by `timeout`.
    """
    verbs = await _verbs(site)
    wire = await site.wire()
    starts = [await _impatient(site, wire) for _ in verbs]
    threads = set(threading.enumerate())
    wire.hang()
    try:
        async with asyncio.timeout(site.cloud.patience):
            ends = await asyncio.gather(
                *(outcome(verb(one)) for verb, one in zip(verbs, starts, strict=True))
            )
    except TimeoutError:
        raise Violated(
            f"the verb still ran after {site.cloud.patience:g} s without an answer"
        ) from None
    for found, started in zip(ends, starts, strict=True):
        for answer in [found] if not isinstance(found, Mapping) else found.values():
            if isinstance(answer, NotFound | Ensured | Done):
                raise Violated(f"without an answer of the cloud, the provider answered {answer}")
        if not any(call.outcome in _UNANSWERED for call in started.context.calls):
            raise Violated("no call was logged with the outcome TIMEOUT")
        await _no_threads(site, started, threads)


async def _impatient(site: Site, wire: Wire) -> Started:
    """Start a provider that does not wait long; on a busy machine that may need several tries."""
    for _ in range(_STARTS):
        with contextlib.suppress(CloudError):
            return await site.start(wire=wire, request_timeout=_SHORT)
    return await site.start(wire=wire, request_timeout=_SHORT)


async def _no_threads(site: Site, started: Started, before: set[threading.Thread]) -> None:
    end = asyncio.get_running_loop().time() + site.cloud.patience
    while left := _threads(started, before):
        if asyncio.get_running_loop().time() > end:
            raise Violated(f"{site.cloud.patience:g} s later these threads still run: {left}")
        await asyncio.sleep(_POLL)


def _threads(started: Started, before: set[threading.Thread]) -> str:
    """Return the new threads, without the framework's idle threads."""
    new = [one for one in threading.enumerate() if one not in before]
    running = [one.name for one in new if one.name != "proreus-resting"]
    return ", ".join(running) or ("of context.call" if started.context.threads_running else "")


@rule(black_hole)
async def cancelled(site: Site) -> None:
    """A verb that is cancelled ends, and does not swallow the cancellation.

    Do not catch `asyncio.CancelledError` or `BaseException` without raising it again.
    """
    for verb in await _verbs(site):
        wire = await site.wire()
        started = await site.start(wire=wire)
        wire.hang()
        task = asyncio.ensure_future(verb(started))
        arrived = asyncio.create_task(wire.arrived.wait())
        await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        task.cancel()
        await asyncio.wait({task}, timeout=site.cloud.patience)
        if not task.cancelled():
            raise Violated(f"a verb that was cancelled while it waited for the cloud {_end(task)}")


def _end(task: "asyncio.Future[Mapping[str, object]]") -> str:
    if not task.done():
        return "went on"
    error = task.exception()
    return f"raised {shown(error)}" if error else f"answered {task.result()}"


async def _verbs(site: Site) -> list[Verb]:
    """Return a verb of each sort that the provider offers, on existing objects."""
    started = await site.start()
    verbs: list[Verb] = []
    if started.provider.instances is not None:
        nodes = await outcome(site.nodes(started, 1))
        if isinstance(nodes, list):
            verbs.append(lambda now: now.instances.describe(nodes))
    if started.provider.load_balancers is not None:
        desired = site.desired(started, await site.hosts(started, 1))
        made = await outcome(site.ensure(started, desired))
        if isinstance(made, list):
            verbs.append(lambda now: now.load_balancers.ensure([desired]))
            verbs.append(lambda now: now.load_balancers.delete([desired.ref]))
    if not verbs:
        raise NotOffered("neither describe nor ensure works yet")
    return verbs


RULES = (errors_not_absence, odd_answers_not_absence, throttled, black_hole, cancelled)
