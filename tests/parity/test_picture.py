"""A picture shows what was changed, and nothing that differs from run to run."""

from typing import Any

import msgspec

from .picture import Cast, Picture, Seen, picture

UID = "0f5c1a52-0000-4000-8000-000000000001"
LOAD_BALANCER = "a0f5c1a52000040008000000000000001"


def seen(*, number: int = 1, label: str = "", events: tuple[dict[str, Any], ...] = ()) -> Seen:
    """A cluster in which all that is given out at random depends on the number."""
    port, address = 30000 + number, f"127.1.0.{number}"
    node = {
        "metadata": {"name": "tale-a", "labels": {"x": label} if label else {}},
        "spec": {"providerID": f"simulated://sim-1/i-{number}"},
        "status": {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{number}"}]},
    }
    service = {
        "metadata": {"name": "tale-web", "uid": UID, "resourceVersion": str(number)},
        "spec": {"ports": [{"protocol": "TCP", "port": 80, "nodePort": port}]},
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }
    parts: tuple[dict[str, Any], ...] = (
        {"kind": "address", "id": f"addr-{number}", "name": LOAD_BALANCER, "address": address},
        {
            "kind": "listener",
            "id": f"lsn-{number}",
            "name": f"{LOAD_BALANCER}-tcp-80",
            "protocol": "TCP",
            "port": 80,
            "target_port": port,
            "state": "active",
        },
    )
    return Seen(nodes=(node,), services=(service,), events=events, machines=(), parts=parts)


def drawn(found: Seen, *, number: int = 1) -> Picture:
    """The picture for a script that has made a node and a Service."""
    written = {"metadata": {"name": ""}, "spec": {}, "status": {}}
    return picture(
        Cast(
            "tale",
            machines={f"i-{number}": "a"},
            written={("node", "a"): written, ("service", "web"): written},
            uids={UID: ("service", "web", 1)},
            words={f"10.0.0.{number}": "<InternalIP of a>"},
        ),
        found,
    )


def test_two_runs_that_end_alike_have_one_picture() -> None:
    assert drawn(seen(number=1), number=1) == drawn(seen(number=2), number=2)
    assert drawn(seen()) == {
        "cloud web <1>/address": "<address 1 of web>",
        "cloud web <1>/listener TCP 80": "node port of TCP 80, active",
        "node a": "there",
        "node a/addresses": "InternalIP <InternalIP of a>",
        "node a/provider id": "simulated://sim-1/<a>",
        "service web": "there",
        "service web/ingress": "ip=<address 1 of web>",
    }


def test_what_a_manager_changes_is_in_the_picture() -> None:
    assert drawn(seen(label="new"))["node a/label x"] == "new"
    without = msgspec.structs.replace(seen(), nodes=(), parts=())
    assert drawn(without)["node a"] == "gone"
    assert not [field for field in drawn(without) if field.startswith("cloud")]


def test_only_events_of_the_controllers_about_the_scripts_objects_count() -> None:
    def event(component: str, name: str) -> dict[str, Any]:
        about = {"kind": "Service", "name": name, "uid": UID, "apiVersion": "v1"}
        kind = {"type": "Normal", "reason": "Done"}
        return {**kind, "involvedObject": about, "source": {"component": component}}

    events = (
        event("service-controller", "tale-web"),
        event("service-controller", "other-web"),
        event("portallocator-repair-controller", "tale-web"),
    )
    shown = [field for field in drawn(seen(events=events)) if field.startswith("event")]
    assert shown == ["event about service web/Normal Done <1>"]
