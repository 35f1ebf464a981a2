"""What happens to nodes whose machines stop, end or are silent."""

from typing import Final

from proreus.kube.objects import TAINT_SHUTDOWN

from ..steps import (  # noqa: TID252 - pytest imports tests by path
    asked,
    change,
    delete_node,
    edit_node,
    end,
    gone,
    has_taint,
    initialised,
    joined,
    machine,
    register,
    says,
    taint,
    unborn,
)
from .script import script

STOP: Final = change(state="stopped")
START: Final = change(state="running")
SILENT: Final = says("Ready", "Unknown")
UNREADY: Final = says("Ready", "False")
READY: Final = says("Ready", "True")
FOREIGN: Final = "simulated://sim-2/i-000000000000"

SCRIPTS: Final = (
    script("ended", joined("a"), (UNREADY, end(), gone())),
    script("ended-silent", joined("a"), (SILENT, end(), gone())),
    script(
        "ended-no-condition",
        (machine(), register(ready=None, provider_id="own"), initialised(), end(), gone()),
    ),
    script("unready", joined("a"), (UNREADY, asked(6))),
    script("stopped", joined("a"), (UNREADY, STOP, has_taint(TAINT_SHUTDOWN))),
    script("stopped-ready", joined("a"), (STOP, asked(4))),
    script(
        "back",
        joined("a"),
        (
            UNREADY,
            STOP,
            has_taint(TAINT_SHUTDOWN),
            START,
            READY,
            has_taint(TAINT_SHUTDOWN, not_=True),
        ),
    ),
    script(
        "back-unready",
        joined("a"),
        (UNREADY, STOP, has_taint(TAINT_SHUTDOWN), START, asked(6)),
    ),
    script(
        "shutdown-by-hand",
        joined("a"),
        (taint(TAINT_SHUTDOWN), has_taint(TAINT_SHUTDOWN, not_=True)),
    ),
    script(
        "stopped-then-ended",
        joined("a"),
        (UNREADY, STOP, has_taint(TAINT_SHUTDOWN), end(), gone()),
    ),
    script("never-there", (unborn(), register(ready="False"), asked(6))),
    script("never-there-by-id", (unborn(), register(ready="False", provider_id="own"), asked(6))),
    script(
        "elsewhere",
        (machine(), register(ready="False", tainted=False, provider_id=FOREIGN), asked(6)),
    ),
    script(
        "no-id",
        (unborn(), register(ready="False", tainted=False), asked(6)),
    ),
    script(
        "held",
        joined("a"),
        (
            edit_node(metadata={"finalizers": ["example.com/hold"]}),
            delete_node(),
            UNREADY,
            end(),
            asked(6),
        ),
    ),
    script("unready-and-back", joined("a"), (UNREADY, asked(2), READY, asked(2))),
)
# By its machine that is gone this node would keep others, which are asked about together with it.
APART: Final = (script("ended-ready", joined("a"), (end(), asked(4))),)
