"""Others write a node at any moment between our patches: no write of theirs or ours is lost."""

import asyncio
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proreus.kube import patch
from proreus.kube.client import Written
from proreus.kube.errors import KubeError, Unreachable, from_status
from proreus.kube.objects import TAINT_UNINITIALIZED, Condition, Node, NodeAddress, WholeTaints
from proreus.kube.patch import Edit, Patch, PatchType
from proreus.kube.requests import NODES, Resource
from proreus.kube.whole import with_whole_taints
from proreus.runtime.writes import WriteResult, write_node
from proreus.testing.memory import patches
from proreus.testing.memory.store import ApiError, Store, Stored

Document = dict[str, Any]
Deed = Callable[[Document], None]
"""What somebody else does to a node as the API server has it."""

NAME: Final = "n"
OURS: Final = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
LABELS: Final[Mapping[str, str | None]] = {"zone": "z", "type": "t", "old": None}
STATUS_KEYS: Final = ("addresses", "CloudInitialized")


def label(key: str, value: str | None) -> Deed:
    """Sets or removes a label, perhaps one of ours."""

    def done(document: Document) -> None:
        labels = document["metadata"].setdefault("labels", {})
        labels.pop(key, None) if value is None else labels.update({key: value})

    return done


def taint(key: str, *, there: bool, more: bool) -> Deed:
    """Sets or removes a taint, perhaps with a field that this process does not know."""

    def done(document: Document) -> None:
        taints = document.setdefault("spec", {}).get("taints") or []
        kept = [one for one in taints if one["key"] != key]
        new = {"key": key, "effect": "NoExecute", **({"future": "x"} if more else {})}
        document["spec"]["taints"] = [*kept, new] if there else kept

    return done


def provider_id(value: str) -> Deed:
    """Sets the provider id, unless there is one."""

    def done(document: Document) -> None:
        document.setdefault("spec", {}).setdefault("providerID", value)

    return done


def heartbeat(status: str) -> Deed:
    """Sets the kubelet's condition."""

    def done(document: Document) -> None:
        conditions = document.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [one for one in conditions if one["type"] != "Ready"]
        conditions.append({"type": "Ready", "status": status})

    return done


deeds = st.one_of(
    st.builds(
        label, st.sampled_from(["zone", "type", "old", "theirs"]), st.sampled_from([None, "z", "q"])
    ),
    st.builds(
        taint,
        st.sampled_from([TAINT_UNINITIALIZED, "a", "b"]),
        there=st.booleans(),
        more=st.booleans(),
    ),
    st.builds(provider_id, st.sampled_from(["p", "q"])),
    st.builds(heartbeat, st.sampled_from(["True", "False"])),
    st.none().map(lambda _: REMADE),
)


def REMADE(document: Document) -> None:  # noqa: N802 - a constant
    """Stands for a node that is deleted and made anew under its name."""


class Server:
    """An API server on which others act before our requests come; answers may be lost."""

    def __init__(self, moments: Iterator[list[Deed]], losses: Iterator[str]) -> None:
        self.store = Store()
        self.ours: list[tuple[Document, Document]] = []
        """What each of our writes found, and what it left."""
        self._moments, self._losses = moments, losses

    def act(self) -> None:
        """Let others do what they do at this moment."""
        for deed in next(self._moments, []):
            present = self.present()
            if deed is REMADE:
                self.store.delete(NODES, present, {})
                self.store.create(NODES, "", first([]))
                continue
            new = copy.deepcopy(present.body)
            deed(new)
            # Spec and status are two writes, as they are for everybody.
            self.store.update(NODES, present, copy.deepcopy(new))
            self.store.update(NODES, self.present(), without_version(new), status=True)

    def present(self) -> Stored:
        return self.store.get(NODES, "", NAME)

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        namespace: str = "",
        subresource: str = "",
    ) -> Written:
        self.act()
        loss = next(self._losses, "")
        if loss == "request":
            raise Unreachable("cut", sent=True)
        before = self.present()
        body = msgspec.json.decode(msgspec.json.encode(patch.body))
        kinds: dict[PatchType, Any] = {
            PatchType.JSON: patches.json_patch,
            PatchType.STRATEGIC: patches.strategic_merge,
        }
        try:
            new = kinds[patch.type](before.body, body)
            after = self.store.update(resource, before, new, status=subresource == "status")
        except patches.PatchError as exc:
            raise refusal(422, "Invalid", str(exc), ()) from exc
        except ApiError as exc:
            causes = tuple(msgspec.to_builtins(one) for one in exc.causes)
            raise refusal(exc.code, exc.reason, str(exc), causes) from exc
        if after is not before:
            self.ours.append((before.body, after.body))
        if loss == "answer":
            raise Unreachable("cut", sent=True)
        return Written(after.body["metadata"]["uid"], after.version)


def refusal(code: int, reason: str, message: str, causes: tuple[Any, ...]) -> KubeError:
    body = {"code": code, "reason": reason, "message": message, "details": {"causes": causes}}
    return from_status(code, json.dumps(body).encode(), {}, patch=True)


def without_version(document: Document) -> Document:
    meta = {name: one for name, one in document["metadata"].items() if name != "resourceVersion"}
    return {**document, "metadata": meta}


def first(taints: list[Document]) -> Document:
    meta = {"name": NAME, "labels": {"old": "1", "kept": "1"}}
    return {"metadata": meta, "spec": {"taints": [OURS, *taints]}, "status": {}}


def cached(stored: Stored) -> Node:
    (node,) = with_whole_taints(stored.encoded, (msgspec.json.decode(stored.encoded, type=Node),))
    return node


def planned(node: Node) -> tuple[Patch, Edit]:
    """What the initialisation writes."""
    status = patch.status(
        node.metadata.uid,
        addresses=(NodeAddress("InternalIP", "10.0.0.1"),),
        conditions=(Condition("CloudInitialized", "True"),),
    )
    main = patch.node_edit(
        node,
        new_labels=LABELS,
        provider_id="p",
        new_taints=tuple(one for one in node.spec.taints if one.key != TAINT_UNINITIALIZED),
    )
    return status, main


@given(
    taints=st.lists(
        st.fixed_dictionaries(
            {"key": st.sampled_from("ab"), "effect": st.just("NoExecute")},
            optional={"future": st.just("x")},
        ),
        max_size=2,
        unique_by=lambda one: one["key"],
    ),
    moments=st.lists(st.lists(deeds, max_size=2), max_size=5),
    losses=st.lists(st.sampled_from(["", "", "", "request", "answer"]), max_size=4),
)
def test_no_write_of_others_is_lost_and_ours_are_done_or_reported(
    taints: list[Document], moments: list[list[Deed]], losses: list[str]
) -> None:
    server = Server(iter(moments), iter(losses))
    server.store.create(NODES, "", first(taints))
    node = cached(server.present())
    status, main = planned(node)
    assert bool(main.merge) == isinstance(node.spec.taints, WholeTaints)
    assert bool(main.merge) != any("future" in one for one in taints)

    result = asyncio.run(write_node(server, NAME, status=status, main=main))

    for before, after in server.ours:
        check_write(node, before, after)
    check_result(server, result)


def check_write(node: Node, before: Document, after: Document) -> None:
    """One of our writes changes what it shall, and that only where it was as we knew it."""
    assert before["metadata"]["uid"] == node.metadata.uid
    assert untouched(before) == untouched(after)
    if before.get("status") != after.get("status"):
        assert before["spec"] == after["spec"]
        assert before["metadata"].get("labels") == after["metadata"].get("labels")
        return
    found, left = (one["metadata"].get("labels", {}) for one in (before, after))
    for key, value in LABELS.items():
        assert found.get(key) == node.metadata.labels.get(key)
        assert left.get(key) == value
    assert "providerID" not in before["spec"]
    assert after["spec"]["providerID"] == "p"
    kept = [one for one in before["spec"]["taints"] if one["key"] != TAINT_UNINITIALIZED]
    assert after["spec"].get("taints", []) == kept


def untouched(document: Document) -> Document:
    """What none of our writes is about."""
    meta, status = document["metadata"], document.get("status", {})
    return {
        "labels": {key: one for key, one in meta.get("labels", {}).items() if key not in LABELS},
        "conditions": [
            one for one in status.get("conditions", []) if one["type"] not in STATUS_KEYS
        ],
        "spec": {
            key: one for key, one in document["spec"].items() if key not in ("taints", "providerID")
        },
    }


def check_result(server: Server, result: WriteResult) -> None:
    """What is reported as written was, and without an error all was."""
    written = [after["metadata"]["resourceVersion"] for _, after in server.ours]
    if result.error is None:
        assert result.written is not None
        assert len(server.ours) == len(("status", "main"))
    if result.written is not None:
        assert str(result.written.resource_version) in written
    if len(written) > bool(result.written):
        assert result.error is not None or len(written) == len(("status", "main"))
