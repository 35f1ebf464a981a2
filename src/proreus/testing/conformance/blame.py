"""Find out whether an error is the fixture's own."""

import inspect
import traceback
from pathlib import Path
from types import FrameType

from proreus.cloudprovider import CloudProvider
from proreus.testing.conformance.fixture import CloudFixture

_HERE = str(Path(__file__).parent)


def fixture_remedy(error: BaseException) -> str:
    """Return where to mend the fixture if it, and no provider, raised the error; else ""."""
    trace = [(frame, line, _owner(frame)) for frame, line in traceback.walk_tb(error.__traceback__)]
    outside = [one for one in trace if not one[0].f_code.co_filename.startswith(_HERE)]
    unwritten = trace[-1][2] if trace else None
    if not outside and isinstance(unwritten, CloudFixture):
        return f"Mend the fixture at {_class_of(unwritten)}"
    if not outside or not isinstance(outside[0][2], CloudFixture):
        return ""
    if any(isinstance(owner, CloudProvider) for _, _, owner in outside):
        return ""
    own = [one for one in outside if isinstance(one[2], CloudFixture)]
    frame, line, _ = own[-1]
    return f"Mend the fixture at {frame.f_code.co_filename}:{line}"


def _owner(frame: FrameType) -> object:
    """Return the first argument of a frame: the object, if a method runs there."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _class_of(fixture: object) -> str:
    """Return where the fixture's class is written, for a method that the class inherits."""
    kind = type(fixture)
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):  # a class that was not read from a file
        return kind.__qualname__
