"""Make texts of the cluster and the cloud fit for a terminal. Pure.

A kubelet writes what it likes in its Node, and so does whoever may create events; the API server
passes on everything. Sequences of control characters can change what a terminal shows of other
lines, and in some what it does.
"""

import msgspec


def line(text: str) -> str:
    """Return the text as one line, with all that is no plain character escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def json(value: object) -> str:
    """Return the value as a JSON document, with all that is no plain character escaped.

    JSON itself escapes only what is below a blank, and terminals obey more than that.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "".join(one if one == "\n" or one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    units = one.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
