"""Count calls of Google in the official manager's metrics, beside the framework's.

The names are the official ones; the values of `request` are a kind of resource and a verb, such as
`forwardingRules_get`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Histogram

from proreus.cloudprovider.metrics import REGISTRY

DURATION: Final = Histogram(
    "cloudprovider_gce_api_request_duration_seconds",
    "Seconds that a call of Compute Engine takes, with its wait for the quota.",
    ["request"],
    registry=REGISTRY,
)
ERRORS: Final = Counter(
    "cloudprovider_gce_api_request_errors",
    "Calls of Compute Engine that failed.",
    ["request"],
    registry=REGISTRY,
)


@contextmanager
def observed(operation: str) -> Iterator[None]:
    """Count a call's seconds, and whether it fails."""
    request = operation.replace(".", "_")
    started = time.monotonic()
    try:
        yield
    except Exception:
        ERRORS.labels(request).inc()
        raise
    finally:
        DURATION.labels(request).observe(time.monotonic() - started)
