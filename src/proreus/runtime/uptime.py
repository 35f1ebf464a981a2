"""Tell how much time has passed: by a clock that nobody sets."""

import time


def uptime() -> float:
    """Return the seconds since the machine's start; it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
