"""Count calls of OpenStack in the official manager's metrics, beside the framework's.

Their names and labels are the official ones; the values of `request` are a kind of object and a
verb, such as `server_list`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Histogram

from proreus.cloudprovider.metrics import REGISTRY

DURATION: Final = Histogram(
    "openstack_api_request_duration_seconds",
    "Seconds that a call of OpenStack takes, with its wait for the quota.",
    ["request"],
    registry=REGISTRY,
)
REQUESTS: Final = Counter(
    "openstack_api_requests_total", "Calls of OpenStack.", ["request"], registry=REGISTRY
)
ERRORS: Final = Counter(
    "openstack_api_request_errors_total",
    "Calls of OpenStack that failed.",
    ["request"],
    registry=REGISTRY,
)


@contextmanager
def observed(operation: str) -> Iterator[None]:
    """Count a call, its seconds, and whether it fails."""
    started = time.monotonic()
    try:
        yield
    except Exception:
        ERRORS.labels(operation).inc()
        raise
    finally:
        REQUESTS.labels(operation).inc()
        DURATION.labels(operation).observe(time.monotonic() - started)
