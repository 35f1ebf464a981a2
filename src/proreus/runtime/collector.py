"""Python's garbage collector, kept away from what is no garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def for_good() -> Iterator[None]:
    """Make objects in the body that stay as long as the process: modules, classes, tables.

    The collector does not look through them while they come, which takes a fifth of the time of a
    start, nor ever after.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
