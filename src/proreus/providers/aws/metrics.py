"""Count calls of AWS in the official manager's metrics, beside the framework's.

Their names and labels are the official ones, but for `_total` at the end of each counter: the
Prometheus client does not make counters without it.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Histogram

from proreus.cloudprovider.metrics import REGISTRY

DURATION: Final = Histogram(
    "cloudprovider_aws_api_request_duration_seconds",
    "Seconds that a successful call of AWS takes, with its wait for the quota.",
    ["request"],
    registry=REGISTRY,
)
ERRORS: Final = Counter(
    "cloudprovider_aws_api_request_errors_total",
    "Calls of AWS that failed, not counting those that were throttled.",
    ["request"],
    registry=REGISTRY,
)
THROTTLED: Final = Counter(
    "cloudprovider_aws_api_throttled_requests_total",
    "Calls that AWS refused because of its quota.",
    ["operation_name"],
    registry=REGISTRY,
)
STATUS: Final = Counter(
    "cloudprovider_aws_api_response_status_total",
    "Answers of AWS by HTTP status; those without an answer are not counted.",
    ["service", "operation", "status_code"],
    registry=REGISTRY,
)
TAGGING_ERRORS: Final = Counter(
    "cloudprovider_aws_tagging_controller_work_item_errors_total",
    "Resources that could not be tagged, by AWS' error code.",
    ["error_type", "instance_id"],
    registry=REGISTRY,
)


def tagging_failed(code: str, ids: Iterable[str]) -> None:
    """Count a refusal for each resource that it names, or once for none."""
    for id_ in list(ids) or [""]:
        TAGGING_ERRORS.labels(code, id_).inc()


@contextmanager
def observed(operation: str) -> Iterator[None]:
    """Count the seconds of a call that succeeds."""
    started = time.monotonic()
    yield
    DURATION.labels(operation).observe(time.monotonic() - started)


def answered(service: str, operation: str, status: int) -> None:
    """Count an answer; `status` is 0 if there was none."""
    if status:
        STATUS.labels(service, operation, str(status)).inc()


def refused(operation: str, *, throttled: bool) -> None:
    """Count an error of a call."""
    (THROTTLED if throttled else ERRORS).labels(operation).inc()
