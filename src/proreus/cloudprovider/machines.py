"""Make the capability `Instances` from functions that find one machine, or many in one call.

self.instances = per_node(self._by_id, self._by_name, parse=id_in, concurrency=10)
self.instances = in_bulk(self._search, parse=id_in)
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from proreus.cloudprovider.errors import IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    Instances,
    NotFound,
    Ownership,
)
from proreus.cloudprovider.lookups import each
from proreus.kube.objects import Node

Search = Callable[[Sequence[str], Sequence[str]], Awaitable[Iterable[Instance]]]
"""A function that returns the machines with the given ids, and those with the given names."""


def per_node(
    by_id: Callable[[str], Awaitable[InstanceAnswer]],
    by_name: Callable[[Node], Awaitable[InstanceAnswer]],
    *,
    parse: Callable[[str], str | None],
    owns: Callable[[Node], Ownership] | None = None,
    scope: Callable[[Node], str] = lambda _: "",
    batch_size: int = 100,
    concurrency: int = 10,
) -> Instances:
    """Make the capability `Instances` for a cloud that has no bulk call for machines.

    An error that `by_id` or `by_name` raises is that node's answer. A node whose provider id
    `parse` cannot read is never looked up: its answer is `InvalidRequest`.

    Args:
        by_id: Looks a machine up by the id that `parse` has found.
        by_name: Looks up the machine of a node that has no provider id.
        parse: Finds the machine's id in a provider id; returns None if the provider id is not of
            this cloud's form. No I/O.
        owns: Tells whether the node's machine is of this cloud. No I/O. By default it is if `parse`
            finds an id in its provider id. Never asked about a provider id in which `parse` finds
            none.
        scope: Returns the scope in which the node is looked up, if there are several (`Scopes`).
        batch_size: The most nodes that one `describe` takes. The answer comes when all are looked
            up.
        concurrency: How many machines are looked up at once.
    """
    return _PerNode(
        by_id, by_name, parse, owns, scope, batch_size=batch_size, concurrency=concurrency
    )


def in_bulk(
    search: Search,
    *,
    parse: Callable[[str], str | None],
    owns: Callable[[Node], Ownership] | None = None,
    scope: Callable[[Node], str] = lambda _: "",
    batch_size: int = 100,
) -> Instances:
    """Make the capability `Instances` for a cloud that shows many machines in one call.

    A machine is its node's by the id that `parse` reads in both provider ids, or by name while the
    node has none. What is not among the machines that `search` returns does not exist, so it must
    raise where it cannot be sure. A node whose provider id `parse` cannot read is never looked up.

    Args:
        search: Returns the machines with these ids, and the machines with these names, each with
            its name. Two machines of one name are an error of that node.
        parse: As for `per_node`.
        owns: As for `per_node`.
        scope: As for `per_node`.
        batch_size: The most ids and names together that one `search` takes.
    """
    return _InBulk(search, parse, owns, scope, batch_size)


class _Found:
    """The base of `Instances` that reads provider ids by a function `parse`."""

    def __init__(
        self,
        parse: Callable[[str], str | None],
        owns: Callable[[Node], Ownership] | None,
        scope: Callable[[Node], str],
        batch_size: int,
    ) -> None:
        self._parse = parse
        self._owns = owns
        self._scope = scope
        self._batch_size = batch_size

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def owns(self, node: Node) -> Ownership:
        if node.spec.provider_id and not self._parse(node.spec.provider_id):
            return Ownership.NO
        if self._owns is not None:
            return self._owns(node)
        return Ownership.YES if node.spec.provider_id else Ownership.UNKNOWN

    def scope(self, node: Node) -> str:
        return self._scope(node)

    def _id(self, node: Node) -> str:
        """Return the id of a node's machine; "" if the node has none yet.

        Raises:
            InvalidRequest: The node's provider id cannot be read.
        """
        id_ = self._parse(node.spec.provider_id) if node.spec.provider_id else ""
        if id_ or not node.spec.provider_id:
            return id_ or ""
        raise InvalidRequest(
            f"spec.providerID {node.spec.provider_id!r} does not have this cloud's form: start the"
            " node's kubelet with the right --provider-id, and make its Node anew"
        )


class _PerNode(_Found):
    def __init__(
        self,
        by_id: Callable[[str], Awaitable[InstanceAnswer]],
        by_name: Callable[[Node], Awaitable[InstanceAnswer]],
        parse: Callable[[str], str | None],
        owns: Callable[[Node], Ownership] | None,
        scope: Callable[[Node], str],
        *,
        batch_size: int,
        concurrency: int,
    ) -> None:
        super().__init__(parse, owns, scope, batch_size)
        self._by_id = by_id
        self._by_name = by_name
        self._concurrency = concurrency

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return await each(nodes, lambda node: node.metadata.name, self._look_up, self._concurrency)

    async def _look_up(self, node: Node) -> InstanceAnswer:
        id_ = self._id(node)
        return await (self._by_id(id_) if id_ else self._by_name(node))


class _InBulk(_Found):
    def __init__(
        self,
        search: Search,
        parse: Callable[[str], str | None],
        owns: Callable[[Node], Ownership] | None,
        scope: Callable[[Node], str],
        batch_size: int,
    ) -> None:
        super().__init__(parse, owns, scope, batch_size)
        self._search = search

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        answers: dict[str, InstanceAnswer] = {}
        ids: dict[str, str] = {}
        for node in nodes:
            try:
                ids[node.metadata.name] = self._id(node)
            except InvalidRequest as error:
                answers[node.metadata.name] = error
        if not ids:
            return answers
        by_id: dict[str | None, list[Instance]] = {}
        by_name: dict[str, list[Instance]] = {}
        names = [name for name, id_ in ids.items() if not id_]
        for found in await self._search([id_ for id_ in ids.values() if id_], names):
            by_id.setdefault(self._parse(found.provider_id), []).append(found)
            by_name.setdefault(found.name, []).append(found)
        for name, id_ in ids.items():
            answers[name] = _only((by_id.get(id_) if id_ else by_name.get(name)) or [])
        return answers


def _only(found: Sequence[Instance]) -> InstanceAnswer:
    if len(found) > 1:
        ids = ", ".join(sorted(machine.provider_id for machine in found))
        return IdentityConflict(
            f"the cloud has several machines of this node's name or id: {ids}; rename or delete all"
            " but one"
        )
    return found[0] if found else NotFound()
