"""Preview the changes of nodes: initialise, refresh, taint, delete, give pod CIDRs. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from proreus.app.preview.applied import applied, lines
from proreus.app.preview.changes import Change
from proreus.cloudprovider.instances import InstanceAnswer, Ownership
from proreus.controllers.cloud_node import plan as node_plan
from proreus.controllers.cloud_node_lifecycle.memory import Alert, Memory, Wait
from proreus.controllers.cloud_node_lifecycle.plan import Pass
from proreus.controllers.cloud_node_lifecycle.plan import plan as lifecycle_plan
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, Owns, Reply
from proreus.controllers.networks import pod_cidrs
from proreus.controllers.node_ipam import plan as ipam
from proreus.controllers.node_ipam.cidrset import Blocks
from proreus.controllers.node_ipam.plan import Mode
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, condition, has_taint
from proreus.kube.patch import Patch

_NOW: Final = 0.0
"""The time on the clock of the observations, which all have this time."""


class Drafts:
    """The nodes as they will be, and the changes that lead there.

    Attributes:
        nodes: The nodes by name, without those that will be deleted.
        held: The changes that are held back, and why.
        others: The nodes that belong to other clouds, which stay as they are.
    """

    def __init__(self, nodes: Sequence[Node], now: datetime, others: Sequence[Node] = ()) -> None:
        """Start with the nodes as they are."""
        self.nodes = {node.metadata.name: node for node in nodes}
        self.others = tuple(others)
        self.held: list[str] = []
        self._now = now
        self._lines: dict[str, list[str]] = {}
        self._gone: list[Change] = []
        self._cloud: list[Change] = []

    @property
    def everything(self) -> tuple[Node, ...]:
        """All nodes of the cluster as they will be, those of other clouds as they are."""
        return (*self.nodes.values(), *self.others)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, node by node; deletions last."""
        written = (
            Change(f"node/{name}", "change", tuple(described))
            for name, described in sorted(self._lines.items())
        )
        return (*written, *self._cloud, *self._gone)

    @property
    def stuck(self) -> tuple[str, ...]:
        """The nodes that stay uninitialised for a reason already in their condition."""
        described = []
        for name, node in sorted(self.nodes.items()):
            state = condition(node.status.conditions, node_plan.CONDITION)
            waits = state is not None and state.status == "False"
            if state and waits and has_taint(node, TAINT_UNINITIALIZED) and name not in self._lines:
                described.append(f"node/{name} is not initialised: {state.reason}: {state.message}")
        return tuple(described)

    def patch(self, name: str, *patches: Patch | None) -> None:
        """Apply patches to a node, and note what they change."""
        node = self.nodes[name]
        described = lines(node, *patches)
        if described:
            self._lines.setdefault(name, []).extend(described)
            self.nodes[name] = applied(node, *patches)

    def initialise(self, answers: Mapping[str, InstanceAnswer], owns: Owns) -> None:
        """Apply what the cloud-node controller does after asking about all nodes."""
        for name, node in list(self.nodes.items()):
            change = node_plan.plan(
                node,
                answers.get(name),
                self._now,
                refresh=not has_taint(node, TAINT_UNINITIALIZED),
                ownership=owns(node),
            )
            if change is not None:
                self.patch(name, change.status, change.main.tested)

    def remove(
        self,
        replies: Sequence[Reply],
        policy: Policy,
        known: Known,
        *,
        returning: Mapping[str, InstanceAnswer] = MappingProxyType({}),
    ) -> None:
        """Apply what the lifecycle controller does if the cloud's answers stay the same."""
        decided = lifecycle_plan(
            tuple(self.nodes.values()),
            replies,
            Memory(),
            policy,
            known,
            now=self._now,
            at=_NOW,
            returning=returning,
        )
        suspected = decided.waiting.keys() | decided.held.keys()
        suspected |= {deletion.node.metadata.name for deletion in decided.delete}
        candidates = {node.metadata.name for reply in replies for node in reply.question.candidates}
        if alive := sorted(candidates - suspected):
            self.held.append(
                "not Ready, but kept while their machines exist or are not known to be gone: "
                f"{', '.join(alive)}"
            )
        for node, patch in decided.taints:
            self.patch(node.metadata.name, patch)
        for deletion in decided.delete:
            self._remove(deletion.node.metadata.name, deletion.reason, "")
        for node, patch in decided.in_service:  # to go out of service takes a second answer
            self.patch(node.metadata.name, patch)
        for name, wait in sorted(decided.powered_off.items()):
            self.held.append(f"powered off, and not out of service yet: {name}: {wait.reason}")
        self._wait(decided, policy)

    def _wait(self, decided: Pass, policy: Policy) -> None:
        """Preview deletions that wait for more answers, unless the breaker will hold them."""
        held: dict[str, list[str]] = {}
        for alarm in decided.alarms:
            if alarm.alert is Alert.BREAKER:
                names = [node.metadata.name for node in alarm.nodes]
                held[alarm.event.message] = names
        for name, wait in decided.held.items():
            if wait.hold is not Alert.BREAKER:
                held.setdefault(wait.reason, []).append(name)
        stay = {name for names in held.values() for name in names}
        for name, wait in sorted(decided.waiting.items()):
            if name not in stay:
                reason = "it does not exist in the cloud provider"
                self._remove(name, reason, _until(wait, policy))
        for why, names in held.items():
            self.held.append(f"not deleted: {why}: {', '.join(sorted(names))}")
        if decided.unknown:
            strange = ", ".join(sorted(decided.unknown))
            self.held.append(f"Ready, but the cloud does not know their machines: {strange}")

    def _remove(self, name: str, reason: str, waits_for: str) -> None:
        del self.nodes[name]
        self._lines.pop(name, None)
        self._gone.append(Change(f"node/{name}", "delete", (f"- because {reason}",), waits_for))

    def allocate(
        self,
        mode: Mode,
        blocks: Blocks,
        in_cloud: Mapping[str, tuple[str, ...]] | None,
        owns: Owns,
    ) -> None:
        """Apply what the IPAM controller does; `in_cloud` are the cloud's blocks, if asked."""
        for node in self.everything:
            if pod_cidrs(node) and mode is not Mode.FROM_CLOUD:
                blocks.hold(node.metadata.uid, pod_cidrs(node))
        for name in sorted(self.nodes):
            if mode.asks_cloud and owns(self.nodes[name]) is Ownership.NO:
                continue
            given = None if in_cloud is None else in_cloud.get(name)
            if self._allocate(mode, name, blocks, given):
                self._allocate(mode, name, blocks, given)

    def _allocate(
        self, mode: Mode, name: str, blocks: Blocks, in_cloud: tuple[str, ...] | None
    ) -> bool:
        """Allocate pod CIDRs once; tell whether the nodes must be looked at again."""
        node = self.nodes[name]
        match ipam.decide(mode, node, in_cloud):
            case ipam.Allocate():
                reserved = blocks.reserve(node.metadata.uid)
                if isinstance(reserved, tuple):
                    self.patch(name, ipam.write(node, tuple(map(str, reserved))))
                    return True
                self.patch(name, ipam.condition_patch(node, ipam.exhausted(reserved), self._now))
            case ipam.Write(cidrs):
                self.patch(name, ipam.write(node, cidrs))
            case ipam.Assign(cidrs):
                others = self.everything if blocks.are_shared(cidrs) else ()
                if trouble := ipam.unassignable(node, others, blocks.clusters):
                    self.patch(name, ipam.condition_patch(node, trouble, self._now))
                    return False
                parts = tuple(f"+ {cidr}" for cidr in cidrs)
                self._cloud.append(Change(f"pod-cidrs/{name}", "create", parts))
            case ipam.Trouble() as trouble:
                self.patch(name, ipam.condition_patch(node, trouble, self._now))
            case ipam.Settled():
                self.patch(name, ipam.condition_patch(node, None, self._now))
        return False


def _until(wait: Wait, policy: Policy) -> str:
    """Return what must happen before the node is deleted."""
    if wait.until is None:
        return wait.reason
    return (
        f"{wait.reason}; at the earliest in {max(0.0, wait.until):.0f} s "
        f"(--node-deletion-confirmations={policy.confirmations}, "
        f"--node-deletion-interval={policy.confirmation_interval:g}s)"
    )
