"""What happens to nodes until, and after, they are initialised."""

from typing import Final

from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    TAINT_UNINITIALIZED,
)
from proreus.testing.simulated import Address

from ..steps import (  # noqa: TID252 - pytest imports tests by path
    asked,
    born,
    change,
    delete_node,
    edit_node,
    end,
    gone,
    has_address,
    has_addresses,
    initialised,
    joined,
    machine,
    noticed,
    register,
    taint,
    unborn,
)
from .script import script

INTERNAL: Final = Address("InternalIP", "192.0.2.1")
SECOND: Final = Address("InternalIP", "192.0.2.2")
EXTERNAL: Final = Address("ExternalIP", "198.51.100.1")
INTERNAL_6: Final = Address("InternalIP", "2001:db8::1")


def with_node_ip(text: str, *addresses: Address) -> tuple[object, ...]:
    """A machine with these addresses, whose kubelet is started with `--node-ip`."""
    annotation = {ANNOTATION_PROVIDED_NODE_IP: text}
    return (
        machine(addresses=addresses or (INTERNAL, SECOND, EXTERNAL)),
        register(annotations=annotation),
    )


def labelled(**labels: str | None) -> object:
    """A user's edit of labels."""
    return edit_node(metadata={"labels": labels})


SCRIPTS: Final = (
    script("plain", joined("a")),
    script("two-at-once", joined("a", "b")),
    script("own-provider-id", (machine(), register(provider_id="own"), initialised())),
    script("other-region", (machine(), register(provider_id="simulated://sim-2/i-000000000000"))),
    script("odd-provider-id", (machine(), register(provider_id="simulated://sim-1/web"))),
    script("node-ip", (*with_node_ip("192.0.2.2"), initialised())),
    script("node-ip-outside", (*with_node_ip("198.51.100.1"), initialised())),
    script("node-ip-unknown", with_node_ip("192.0.2.99")),
    script("node-ip-odd", with_node_ip("localhost")),
    script("node-ip-alike", with_node_ip("192.0.2.1,192.0.2.2")),
    script(
        "node-ip-dual",
        (*with_node_ip("2001:db8::1,192.0.2.2", INTERNAL, SECOND, INTERNAL_6), initialised()),
    ),
    script(
        "other-taints",
        (
            machine(),
            register(taints=[{"key": "team", "value": "red", "effect": "NoExecute"}]),
            initialised(),
        ),
    ),
    script(
        "other-effect",
        (
            machine(),
            register(tainted=False, taints=[{"key": TAINT_UNINITIALIZED, "effect": "NoExecute"}]),
            initialised(),
        ),
    ),
    script(
        "labels-before",
        (
            machine(),
            register(labels={LABEL_ZONE: "by-hand", LABEL_INSTANCE_TYPE_BETA: "by-hand"}),
            initialised(),
        ),
    ),
    script("no-zone", joined("a", zone="")),
    script("no-type", joined("a", type="")),
    script("more-labels", joined("a", labels={"rack": "r1", "example.com/room": "blue"})),
    script(
        "more-labels-taken",
        (machine(labels={"rack": "r1"}), register(labels={"rack": "mine"}), initialised()),
    ),
    script("more-labels-reserved", joined("a", labels={"node.kubernetes.io/rack": "r1"})),
    script("no-machine", (unborn(), register(), asked())),
    script("machine-later", (unborn(), register(), noticed(), born(), initialised())),
    script("no-taint", (machine(), register(tainted=False), has_addresses())),
    script(
        "no-taint-but-id",
        (machine(), register(tainted=False, provider_id="own"), has_addresses()),
    ),
    script(
        "new-addresses",
        joined("a"),
        (change(addresses=[INTERNAL, EXTERNAL]), has_address("192.0.2.1")),
    ),
    script("no-hostname", joined("a", addresses=(INTERNAL, EXTERNAL))),
    script("no-addresses-later", joined("a"), (change(addresses=[]), asked(4))),
    script("two-of-a-type", joined("a", addresses=(INTERNAL, SECOND)), (asked(4),)),
    script(
        "name-again",
        joined("a"),
        (
            delete_node(),
            gone(),
            end(),
            machine("b", of_name="a"),
            register("a", of="b"),
            initialised(),
        ),
    ),
    script(
        "held-while-new",
        (machine(), register(finalizers=["example.com/hold"]), initialised()),
        (delete_node(), taint(TAINT_UNINITIALIZED, value="true"), asked(4)),
    ),
    script("zone-edited", joined("a"), (labelled(**{LABEL_ZONE: "by-hand"}), asked(4))),
    script("zone-edited-beta", joined("a"), (labelled(**{LABEL_ZONE_BETA: "by-hand"}), asked(4))),
    script("zone-removed", joined("a"), (labelled(**{LABEL_ZONE: None}), asked(4))),
    script("type-edited", joined("a"), (labelled(**{LABEL_INSTANCE_TYPE: "by-hand"}), asked(4))),
    script("new-type", joined("a"), (change(type="sim.huge"), asked(4))),
    script("new-zone", joined("a"), (change(zone="sim-1b"), asked(4))),
    script("label-edited", joined("a"), (labelled(team="red"), asked(4))),
    script("tainted-again", joined("a"), (taint(TAINT_UNINITIALIZED), initialised())),
    script(
        "unschedulable",
        (machine(), register(), edit_node(spec={"unschedulable": True}), initialised()),
    ),
)
