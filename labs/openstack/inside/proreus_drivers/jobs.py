# mypy: ignore-errors
"""Keeps what Octavia's API hands to its worker: a file for each load balancer that is changed.

Octavia takes one change of a load balancer at a time, so one file for each is enough. Files outlive
the worker: one that is started again goes on where the last one was.
"""

import json
from pathlib import Path

WAITING = Path("balancers/waiting")
DOING = Path("balancers/doing")
BROKEN = Path("balancers/broken")
"""Holds an empty file by the name of each load balancer whose next change is to end in ERROR."""


def write(balancer, state, parts):
    """Hand over: afterwards the load balancer and its parts are to be in these states.

    The API process calls this before it commits what it has changed in the database.
    """
    job = {"balancer": balancer, "state": state, "parts": parts}
    draft = WAITING / f"{balancer}.draft"
    draft.write_text(json.dumps(job))
    draft.replace(WAITING / f"{balancer}.json")
