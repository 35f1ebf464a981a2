"""Make texts of the cluster and the cloud fit for a terminal. Pure.

A kubelet writes what it likes in its Node, and so does whoever may create events; the API server
passes on everything. Sequences of control characters can change what a terminal shows of other
lines, and in some what it does.
"""


def line(text: str) -> str:
    """Return the text as one line, with all that is no plain character escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
