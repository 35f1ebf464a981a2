"""Look a batch of machines up in parts that the cloud takes, some of which may fail.

    of_ids, of_names = await ask_all((ids, self._by_id), (names, self._by_name))

What an answer means for one node, a provider decides in a pure function (`match`): absence is only
what the cloud says of that very machine; what a list left out is unknown, or asked for alone.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, ParamSpec, TypeVar

from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.cloudprovider.instances import Instances, NotFound, Ownership
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import KubeObject, Node

MOST_SHOWN: Final = 20
"""Machines that are asked about to see whether the credentials are the right ones."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RANDOM: Final = re.compile(r".{14}4.{4}[89ab].{16}")
"""The form of random UUIDs (RFC 9562, version 4)."""

Item = TypeVar("Item", bound=Any)
Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
P = ParamSpec("P")

Question = tuple[Collection[str], Callable[[Collection[str]], Awaitable[Mapping[str, Any]]]]
"""Ids or names, and the function that asks about them."""


def ownership_by_id(node: Node, is_ours: Callable[[str], object]) -> Ownership:
    """Tell whether a node is of a cloud, by its provider id alone; unknown without one. Pure.

    Args:
        node: The Node.
        is_ours: Tells whether a provider id is of the cloud; a function that parses one will do:
            None means that it is not.
    """
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    return Ownership.YES if is_ours(node.spec.provider_id) else Ownership.NO


def ownership(instances: Instances | None, node: Node) -> Ownership:
    """Tell whether a node is of a cloud with these machines; unknown if it has none to tell."""
    return Ownership.UNKNOWN if instances is None else instances.owns(node)


def foreign_id(provider_id: str, cloud: str, form: str) -> str:
    """Return why a node cannot be looked up: its provider id has not the cloud's form. Pure."""
    return f"spec.providerID {provider_id!r} is not one of {cloud}: it must have the form {form}"


def system_uuids(node: Node) -> tuple[str, ...]:
    """Return the UUID that a kubelet reports of its machine, in both byte orders. Pure.

    The swapped one comes first, as in the official manager of vSphere; there is none if the kubelet
    reports none.
    """
    reported = node.status.node_info.system_uuid.strip().lower()
    known = (swapped(reported), reported) if _UUID.fullmatch(reported) else ()
    return tuple(dict.fromkeys(known))


def random_system_uuids(node: Node) -> tuple[str, ...]:
    """Return those of `system_uuids` that are random, for clouds with such ids. Pure.

    Where a cloud makes a machine's id its UUID of SMBIOS with some hypervisors only, a UUID that is
    no machine's says nothing; but one that is a machine's tells on which one the kubelet runs.
    """
    return tuple(uuid for uuid in system_uuids(node) if _RANDOM.fullmatch(uuid))


def runs_elsewhere(
    id_: str,
    uuids: Collection[str],
    known: Mapping[str, Mapping[str, Any] | CloudError | None] | CloudError,
) -> CloudError | None:
    """Return why a Node's machine is not that of its id or name, if its kubelet tells so. Pure.

    Args:
        id_: The machine's id in the Node's provider id; "" if it was looked for by its name.
        uuids: What the id of the machine may be on which the kubelet runs, by its word.
        known: The answers about these: a machine with `id` and `name`, an error, or None; or the
            error that there are none.
    """
    if isinstance(known, CloudError):
        return known if uuids else None
    found = [one for uuid in uuids if (one := known.get(uuid)) is not None]
    machine = next((one for one in found if isinstance(one, Mapping)), None)
    if machine is None:
        return next((one for one in found if isinstance(one, CloudError)), None)
    named = f"the machine {id_} of its provider id" if id_ else "the one of its name"
    return IdentityConflict(
        f"the kubelet of the Node reports the UUID of the machine {machine['id']}, called"
        f" {machine.get('name')}, and not of {named}: delete the Node and restart its kubelet,"
        " with --provider-id if the machine has another name, so that it makes the Node anew"
    )


def found_by_id(
    id_: str, known: Mapping[str, Answer | CloudError | None] | CloudError
) -> Answer | NotFound | CloudError:
    """Return the answer about a machine from what was looked up by ids: None is absence. Pure."""
    if isinstance(known, CloudError):
        return known
    machine = known[id_]
    return NotFound() if machine is None else machine


def swapped(uuid: str) -> str:
    """Return a UUID with its first three fields in the other byte order. Pure.

    SMBIOS 2.6 and later has them in little endian, and what a guest reports depends on the
    version of its virtual hardware.
    """
    fields = uuid.split("-")
    return "-".join([_reversed(field) for field in fields[:3]] + fields[3:])


def _reversed(field: str) -> str:
    return "".join(reversed([field[at : at + 2] for at in range(0, len(field), 2)]))


async def check_shown(
    ids: Iterable[str], by_id: Callable[[Collection[str]], Awaitable[Mapping[str, Any]]]
) -> None:
    """Refuse to take a load balancer for gone where none of the cluster's machines is shown either.

    Credentials of another account, or for another region, show nothing of a Service: what is taken
    for gone would be made once more there, or stay for ever where it is.

    Args:
        ids: The ids of the nodes' machines; of many, some are asked about.
        by_id: Returns machines by their ids: None or an error for those that are not shown.

    Raises:
        CloudError: None of them is shown, or the cloud does not answer.
    """
    found = await by_id(some_of(sorted(set(ids)), MOST_SHOWN))
    if not any(isinstance(one, Mapping) for one in found.values()):
        raise CloudError(
            "neither the Service's load balancer nor a machine of the cluster's nodes is shown: are"
            " the credentials and the region in the cloud-config right? If all of them are gone for"
            " good, delete the Nodes"
        )


async def check_nodes_shown(
    nodes: Iterable[KubeObject],
    id_of: Callable[[str], str | None],
    by_id: Callable[[Collection[str]], Awaitable[Mapping[str, Any]]],
) -> None:
    """Do as `check_shown` with the machines of Nodes; a cluster without any Node passes.

    Args:
        nodes: All Nodes, as a lister has them.
        id_of: Returns the id of the machine in a provider id; None if it is not of this cloud.
        by_id: Returns machines by their ids.

    Raises:
        CloudError: None of them is shown, or the cloud does not answer.
    """
    every = (one.spec.provider_id for one in nodes if isinstance(one, Node))
    if ids := {found for one in every if (found := id_of(one))}:
        await check_shown(ids, by_id)


def some_of(items: Sequence[Item], most: int) -> list[Item]:
    """Return the items, or as many of them as that by chance."""
    return random.sample(items, min(len(items), most))


def most_first(items: Iterable[Item]) -> list[Item]:
    """Return the different items, those that occur most often first, else in their order. Pure."""
    return [item for item, _ in Counter(items).most_common()]


def in_parts(items: Iterable[Item], size: int) -> list[list[Item]]:
    """Split the items, sorted, into as few lists as hold `size` each at most. Pure."""
    ordered = sorted(items)
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]


async def attempt(
    work: Callable[P, Awaitable[Answer]], *args: P.args, **kwargs: P.kwargs
) -> Answer | CloudError:
    """Call `work` with the arguments; return its answer, or the CloudError that it raises.

    It takes a function, since a task of it may be cancelled before it begins: a coroutine would
    then never be awaited.
    """
    try:
        return await work(*args, **kwargs)
    except CloudError as error:
        return error


async def ask_all(*questions: Question) -> list[Any]:
    """Ask several questions side by side; return the answer or the error of each.

    Raises:
        CloudError: All questions that were about anything failed: the batch is to be tried again as
            a whole.
    """
    answers = await asyncio.gather(*(attempt(ask, about) for about, ask in questions))
    relevant = [answer for answer, (about, _) in zip(answers, questions, strict=True) if about]
    failed = [answer for answer in relevant if isinstance(answer, CloudError)]
    if failed and len(failed) == len(relevant):
        raise failed[0]
    return list(answers)


async def each(
    items: Iterable[Item],
    key: Callable[[Item], Key],
    fn: Callable[[Item], Awaitable[Answer]],
    concurrency: int,
) -> dict[Key, Answer | CloudError]:
    """Run `fn` for each item, `concurrency` at once; whatever it raises is the item's answer.

    An item whose task was cancelled from within is left out of the answers.
    """
    answers: dict[Key, Answer | CloudError] = {}
    slots = asyncio.Semaphore(concurrency)

    async def one(item: Item) -> None:
        async with slots:
            answers[key(item)] = await _answer(fn, item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    return answers


async def _answer(fn: Callable[[Item], Awaitable[Answer]], item: Item) -> Answer | CloudError:
    try:
        return await fn(item)
    except CloudError as error:
        return error
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the item's answer; SDKs call sys.exit()
        # The text of a foreign exception may hold a secret; events would show it.
        answer = CloudError(f"unexpected {type(error).__name__}")
        answer.__cause__ = error
        return answer


class Recent(Generic[Answer]):
    """A brief memory of answers about ids, for many who ask about the same ids at once."""

    def __init__(
        self,
        ask: Callable[[Collection[str]], Awaitable[Mapping[str, Answer]]],
        *,
        seconds: float = 10.0,
    ) -> None:
        """Begin with nothing known.

        Args:
            ask: Asks the cloud; returns an answer for each id.
            seconds: Seconds for which an answer counts.
        """
        self._ask = ask
        self._seconds = seconds
        self._known: dict[str, tuple[float, Answer]] = {}
        self._turn = asyncio.Lock()

    async def find(self, ids: Collection[str]) -> Mapping[str, Answer]:
        """Return the answer for each id; if one is not known, all are asked for.

        Raises:
            CloudError: The cloud gives no usable answer.
        """
        async with self._turn:
            now = asyncio.get_running_loop().time()
            self._known = {
                id_: known for id_, known in self._known.items() if now - known[0] < self._seconds
            }
            if not self._known.keys() >= set(ids):
                found = await self._ask(ids)
                self._known |= {id_: (now, answer) for id_, answer in found.items()}
            return {id_: self._known[id_][1] for id_ in ids}

    def forget(self) -> None:
        """Forget all answers, after one of them turned out to be wrong by now."""
        self._known.clear()


async def all_but_refused(
    send: Callable[[list[str]], Awaitable[object]],
    ids: Iterable[str],
    named: Callable[[Refused], Collection[str]],
) -> dict[str, str]:
    """Send ids to a cloud that takes all or none; send again without those that it refuses.

    Args:
        send: Sends the ids in one call.
        ids: The ids, in their order.
        named: Returns the ids that a refusal is about; none if it is about something else.

    Returns:
        By id the reason for which the cloud refused it.

    Raises:
        CloudError: The cloud refuses for another reason, or does not answer.
    """
    ids, refused = tuple(ids), dict[str, str]()
    while left := [one for one in ids if one not in refused]:
        try:
            await send(left)
            break
        except Refused as error:
            found = set(named(error)) & set(left)
            if not found:
                raise
            refused |= dict.fromkeys(found, error.text)
    return refused
