"""For each rule about machines and routes: a copy of a good provider that breaks just this one."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    Done,
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
    Pending,
    Route,
)
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import Node, NodeAddress
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.providers.simulated.routes import SimulatedRoutes
from proreus.testing.conformance import machines, names, routes, scopes
from proreus.testing.conformance.site import CLUSTER

from .broken import fails, failures

if TYPE_CHECKING:
    from proreus.cloudprovider import Context

Answers = Mapping[str, InstanceAnswer]


class Nothing(SimulatedCloud):
    async def start(self, context: "Context") -> None:
        pass


class Changed(SimulatedInstances):
    """Each answer is changed by `change`."""

    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        raise NotImplementedError

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        answers = await super().describe(nodes)
        changed = {
            node.metadata.name: self.change(node, answers[node.metadata.name])
            for node in nodes
            if node.metadata.name in answers
        }
        return {name: answer for name, answer in changed.items() if answer is not None}


class NoNames(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        return answer if node.spec.provider_id else None


class IdFromMemory(Changed):
    """A new process makes another id for the same machine."""

    known = False

    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        self.known = self.known or not node.spec.provider_id
        if self.known or not isinstance(answer, Instance):
            return answer
        return msgspec.structs.replace(answer, provider_id=answer.provider_id + "-again")


class OddAddress(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        if not isinstance(answer, Instance):
            return answer
        return msgspec.structs.replace(answer, addresses=(NodeAddress("InternalIP", "10.0.0.300"),))


class BelievesNodes(Changed):
    """What the Node says it has is repeated, and `reported` is said of it."""

    reported = False

    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        if not isinstance(answer, Instance):
            return answer
        believed = tuple(dict.fromkeys((*answer.addresses, *node.status.addresses)))
        return msgspec.structs.replace(answer, addresses=believed, self_reported=self.reported)


class ReportsThatItBelievesNodes(BelievesNodes):
    reported = True


class RepeatsTheName(Changed):
    """Calls a machine what its Node is called, where the cloud calls it otherwise."""

    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        if not isinstance(answer, Instance):
            return answer
        return msgspec.structs.replace(answer, name=node.metadata.name)


class RepeatsTheHostname(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        if not isinstance(answer, Instance):
            return answer
        repeated = NodeAddress("Hostname", node.metadata.name)
        return msgspec.structs.replace(answer, addresses=(*answer.addresses, repeated))


class NeverAbsent(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        return CloudError("no such machine") if isinstance(answer, NotFound) else answer


class TombstonesForUnknownIds(Changed):
    """What the cloud does not know was surely terminated: with wrong credentials, all of it."""

    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        is_absent = isinstance(answer, NotFound) and node.spec.provider_id
        return NotFound(tombstone=True) if is_absent else answer


class AbsentUnderAnotherName(Changed):
    """The machine must have the Node's name as well, so that one that is renamed is gone."""

    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        is_renamed = isinstance(answer, Instance) and answer.name != node.metadata.name
        return NotFound() if is_renamed else answer


class FallsBackToNames(SimulatedInstances):
    """What Go's framework did for years: no machine of that id, so look for one of that name."""

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        answers = dict(await super().describe(nodes))
        for node in nodes:
            if node.spec.provider_id and isinstance(answers.get(node.metadata.name), NotFound):
                bare = Node(metadata=node.metadata)
                answers |= await super().describe([bare])
        return answers


class OwnsEverything(SimulatedInstances):
    def owns(self, node: Node) -> Ownership:
        return Ownership.YES


class LooksUpNamesOfUnreadableIds(SimulatedInstances):
    """Takes an id that it cannot read for none, as code does that strips a prefix."""

    def owns(self, node: Node) -> Ownership:
        unread = node.spec.provider_id and not _is_whole(node)
        return Ownership.UNKNOWN if unread else super().owns(node)

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        mine = [node for node in nodes if _is_whole(node)]
        unread = [Node(metadata=node.metadata) for node in nodes if not _is_whole(node)]
        return {**await super().describe(mine), **await super().describe(unread)}


def _is_whole(node: Node) -> bool:
    scheme, _, rest = node.spec.provider_id.partition("://")
    return scheme != "simulated" or bool(rest.rpartition("/")[2].strip())


class OwnsUnreadableIds(SimulatedInstances):
    def owns(self, node: Node) -> Ownership:
        mine = node.spec.provider_id.startswith("simulated://")
        return Ownership.YES if mine else super().owns(node)


class ForeignIsAbsent(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        return NotFound() if node.spec.provider_id.startswith("another-cloud:") else answer


class NeverStopped(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        if not isinstance(answer, Instance):
            return answer
        return msgspec.structs.replace(answer, state=InstanceState.RUNNING, powered_off=False)


class OffWhileItRuns(Changed):
    def change(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer | None:
        if not isinstance(answer, Instance):
            return answer
        return msgspec.structs.replace(answer, powered_off=True)


class AScopeForEachMachine(SimulatedInstances):
    def scope(self, node: Node) -> str:
        return node.spec.provider_id


class ScopeOfTheLastAnswer(SimulatedInstances):
    """Learns the scope by `describe`, so that it changes."""

    answered = 0

    def scope(self, node: Node) -> str:
        return str(self.answered)

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        self.answered += 1
        return await super().describe(nodes)


class ScopeFromAFile(SimulatedInstances):
    def scope(self, node: Node) -> str:
        return Path(__file__).with_name("account").read_text()


class ScopeFromTheNetwork(SimulatedInstances):
    def scope(self, node: Node) -> str:
        return str(socket.getaddrinfo("127.0.0.1", 80)[0][0])


class ScopeOfReadableIdsOnly(SimulatedInstances):
    def scope(self, node: Node) -> str:
        return node.spec.provider_id.split("/")[2]


class UnknownScope(SimulatedInstances):
    def scope(self, node: Node) -> str:
        raise CloudError("nobody knows")


class ScopeThatIsNoText(SimulatedInstances):
    def scope(self, node: Node) -> Any:
        return ["a list"]


class AnswersForOthers(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        return {**await super().describe(nodes), "somebody-else": CloudError("who?")}


class HalfBatches(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        return await super().describe(nodes[:10])


class OneBadForAll(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        try:
            return await super().describe(nodes)
        except Refused as error:
            if len(nodes) == 1:
                raise
            return {node.metadata.name: error for node in nodes}


class FirstPageOfMachines(SimulatedInstances):
    """Lists all machines, and reads one page of the list."""

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        answers = await super().describe(nodes)
        first_page = {f"machine-{number}" for number in range(1, 21)}
        return {
            name: answer
            for name, answer in answers.items()
            if name in first_page or not isinstance(answer, Instance)
        }


class RefusesWhatIsThere(SimulatedRoutes):
    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        owned = await self.list(cluster, nodes)
        if any(route in owned for route in create):
            return {route: CloudError("it exists already") for route in create}
        return await super().apply(cluster, nodes, create, delete)


class AllRoutes(SimulatedRoutes):
    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        return await super().list(CLUSTER, nodes)


BROKEN: dict[str, type] = {
    "capabilities": Nothing,
    "machine-found": NoNames,
    "provider-id": IdFromMemory,
    "addresses": OddAddress,
    "names": RepeatsTheName,
    "absence-said": NeverAbsent,
    "identity": FallsBackToNames,
    "owns": OwnsEverything,
    "unreadable-id": LooksUpNamesOfUnreadableIds,
    "foreign-nodes": ForeignIsAbsent,
    "scope": AScopeForEachMachine,
    "stopped": NeverStopped,
    "powered-off": OffWhileItRuns,
    "batch-asked-only": AnswersForOthers,
    "batch-full": HalfBatches,
    "malformed-id": OneBadForAll,
    "pages-of-machines": FirstPageOfMachines,
    "routes-applied": RefusesWhatIsThere,
    "routes-of-other-clusters": AllRoutes,
}


def test_each_rule_has_a_broken_copy() -> None:
    # That `lacks` is true is a rule about the fixture: test_suite.
    rules = {*machines.RULES, *names.RULES, *scopes.RULES, *routes.RULES}
    rules -= {machines.lacks_true}
    assert set(BROKEN) == {rule.id for rule in rules}


@pytest.mark.parametrize("rule", BROKEN)
async def test_a_copy_that_breaks_a_rule_fails_it(rule: str) -> None:
    assert await fails(BROKEN[rule], rule)


@pytest.mark.long
@pytest.mark.parametrize("rule", BROKEN)
async def test_a_copy_that_breaks_one_rule_fails_no_other(rule: str) -> None:
    found = await failures(BROKEN[rule])
    assert list(found) == [rule], found


async def test_an_id_that_is_only_unknown_is_no_tombstone() -> None:
    found = await failures(TombstonesForUnknownIds, machines.absence_said)
    assert (
        "which no machine ever had, describe answered NotFound(tombstone" in found["absence-said"]
    )


async def test_a_machine_that_was_renamed_is_not_gone() -> None:
    found = await failures(AbsentUnderAnotherName, machines.identity)
    assert "a machine of another name, describe said NotFound" in found["identity"]


async def test_a_provider_that_repeats_what_a_node_says_must_say_so() -> None:
    found = await failures(BelievesNodes, machines.addresses)
    assert "198.18.255.254, which only the Node says" in found["addresses"]
    assert await failures(ReportsThatItBelievesNodes, machines.addresses) == {}


async def test_a_host_name_that_only_the_node_has_is_not_the_clouds() -> None:
    found = await failures(RepeatsTheHostname, names.names)
    assert "under the name claimed-" in found["names"]
    assert await failures(ReportsThatItBelievesNodes, names.names) == {}


async def test_an_id_that_names_no_machine_is_not_owned() -> None:
    found = await failures(OwnsUnreadableIds, machines.unreadable_id)
    assert "'simulated://', owns is Ownership.YES" in found["unreadable-id"]


@pytest.mark.parametrize(
    ("part", "seen"),
    [
        (AScopeForEachMachine, "two machines that were made together have different scopes"),
        (ScopeOfTheLastAnswer, "scope answered '1' before describe, and '2' after it"),
        (ScopeFromAFile, "did I/O: open"),
        (ScopeFromTheNetwork, "did I/O: socket.getaddrinfo"),
        (ScopeOfReadableIdsOnly, "for the provider id '', scope raised IndexError"),
        (UnknownScope, "which runs, scope raised CloudError: nobody knows"),
        (ScopeThatIsNoText, "scope answered ['a list'], which is no str"),
    ],
)
async def test_what_is_wrong_with_a_scope_is_reported(part: type, seen: str) -> None:
    assert seen in (await failures(part, scopes.scope))["scope"]


async def test_a_scope_may_be_unknown_for_what_is_not_of_this_cloud() -> None:
    class OfItsOwn(SimulatedInstances):
        def scope(self, node: Node) -> str:
            if self.owns(node) is not Ownership.YES:
                raise CloudError("it is another cloud's")
            return "the one account"

    assert await failures(OfItsOwn, scopes.scope) == {}
