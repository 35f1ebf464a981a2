"""Keep Python's garbage collector away from objects that live as long as the process."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def for_good() -> Iterator[None]:
    """Exempt objects made in the body from collection: modules, classes, tables.

    The collector does not look through them while they come, which takes a fifth of the time of a
    start, nor ever after.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
