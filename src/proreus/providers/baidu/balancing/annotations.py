"""Read what annotations ask of a Service's load balancer and its public address. Pure."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.annotations import AnnotationReader

PREFIX: Final = "service.beta.kubernetes.io/cce-"
"""The prefix of all annotations of this provider."""
ADDED_ID: Final = f"{PREFIX}load-balancer-cce-add-id"
ADDED_EIP: Final = f"{PREFIX}load-balancer-cce-add-eip"
"""Written on a Service: the load balancer and the public address that were made for it."""
MOST: Final = 50
"""The most back ends of a load balancer."""
PREPAID: Final = "Prepaid"
POSTPAID: Final = "Postpaid"
ROUND_ROBIN: Final = "RoundRobin"
LEAST: Final = "LeastConnection"
HASH: Final = "Hash"
"""The ways in which a listener chooses a back end."""

_LEAST_TODAY: Final = "WeightLeastConn"
"""What the newer documents call it."""
_BY_TRAFFIC: Final = "ByTraffic"
_BY_BANDWIDTH: Final = "ByBandwidth"
_WIDEST: Final = {_BY_TRAFFIC: 1000, _BY_BANDWIDTH: 200}
_MONTHS: Final = (*range(1, 10), 12, 24, 36)
_BALANCER: Final = re.compile(r"lb-[0-9A-Za-z]{1,60}")
_SUBNET: Final = re.compile(r"sbn-[0-9A-Za-z]{1,60}")
_NAME: Final = re.compile(r"(?!(?i:CCE/|a[0-9a-f]{31}$))[A-Za-z][A-Za-z0-9_/.-]{0,64}")
"""Names that official managers give are reserved: by those they know what is theirs."""
_NAMING: Final = (
    "give up to 65 letters, digits, -, _, / and ., a letter first, but no name as the official"
    " manager gives them (CCE/…, or a and 31 hexadecimal digits)"
)
_CHECK: Final = re.compile(r"[\x21-\x7e]{1,128}")
_PORT: Final = re.compile(r"[1-9]\d{0,4}")


class Bandwidth(msgspec.Struct, frozen=True):
    """A public address as it is to be bought.

    Attributes:
        payment: Prepaid or Postpaid.
        billing: ByTraffic or ByBandwidth; "" where it is prepaid.
        megabits: The bandwidth in Mbit/s, by default the widest.
        months: The number of months for which it is prepaid.
        is_asked: Whether an annotation gives the bandwidth, so that it is kept at that.
        asked: The payment and billing that annotations ask for, which cannot be changed later.
        name: The name of the address; "" for that of the load balancer.
    """

    payment: str = POSTPAID
    billing: str = _BY_TRAFFIC
    megabits: int = 1000
    months: int = 0
    is_asked: bool = False
    asked: tuple[str, str] = ("", "")
    name: str = ""


class Options(msgspec.Struct, frozen=True):
    """The options of a load balancer that annotations choose.

    Attributes:
        given: The id of the load balancer to use, or "".
        name: Its name, or "".
        subnet: The id of the subnet in which it is made, or "".
        vip: Whether it gets an address of Baidu's own network.
        internal: Whether it has no public address.
        keeps: Whether it stays when the Service is deleted.
        most: The most back ends that it may have.
        scheduler: The algorithm that chooses a back end; "" where no annotation gives one.
        health: The health check, by the API's names.
        check_string: What UDP health checks send.
        http: The ports that are balanced as HTTP.
        eip: The settings of the public address.
    """

    given: str = ""
    name: str = ""
    subnet: str = ""
    vip: bool = False
    internal: bool = False
    keeps: bool = False
    most: int = MOST
    scheduler: str = ""
    health: Mapping[str, int] = {}
    check_string: str = "HealthCheck"
    http: frozenset[int] = frozenset()
    eip: Bandwidth = Bandwidth()


def read_options(annotations: Mapping[str, str]) -> Options:
    """Read the annotations of a Service.

    Raises:
        InvalidRequest: Annotations are wrong; names each of them, and the remedy.
    """
    read = AnnotationReader(annotations, PREFIX)
    found = Options(
        given=_given(read),
        name=read.form(
            "load-balancer-lb-name",
            _NAME,
            _NAMING,
        ),
        subnet=read.form(
            "load-balancer-subnet-id", _SUBNET, "give the id of a subnet, such as sbn-25khfnxgfb73"
        ),
        vip=read.flag("load-balancer-allocate-vip"),
        internal=read.flag("load-balancer-internal-vpc"),
        keeps=read.flag("load-balancer-reserve-lb"),
        most=read.number("load-balancer-rs-max-num", 1, MOST, MOST),
        scheduler=_scheduler(read),
        health=_health(read),
        check_string=read.form(
            "load-balancer-health-check-string",
            _CHECK,
            "give up to 128 printable characters without spaces",
            "HealthCheck",
        ),
        http=_http(read),
        eip=_bandwidth(read),
    )
    read.check()
    return found


def given_balancer(annotations: Mapping[str, str]) -> str:
    """Return the load balancer that annotations name, or ""; wrong annotations name none."""
    return _given(AnnotationReader(annotations, PREFIX))


def same_scheduler(name: str) -> str:
    """Return a scheduler's older name, where the cloud has two names for it."""
    return LEAST if name == _LEAST_TODAY else name


def _given(read: AnnotationReader) -> str:
    """Return the load balancer that a Service names.

    The official manager writes the id of one that it has made as `load-balancer-id`, too, beside
    `load-balancer-cce-add-id`: such a Service names none.
    """
    remedy = "give the id of a load balancer, such as lb-d9e2f7a1"
    named = read.form("load-balancer-id", _BALANCER, remedy)
    existing = read.form("load-balancer-exist-id", _BALANCER, remedy)
    if named == read.text("load-balancer-cce-add-id"):
        named = ""
    if named and existing and named != existing:
        read.wrong("load-balancer-exist-id", "give one load balancer, not two")
    return named or existing


def _scheduler(read: AnnotationReader) -> str:
    choices = (ROUND_ROBIN, LEAST, _LEAST_TODAY, HASH)
    return same_scheduler(read.choice("load-balancer-scheduler", choices))


def _health(read: AnnotationReader) -> dict[str, int]:
    return {
        "healthCheckTimeoutInSecond": read.number(
            "load-balancer-health-check-timeout-in-second", 1, 60, 3
        ),
        "healthCheckInterval": read.number("load-balancer-health-check-interval", 1, 10, 3),
        "unhealthyThreshold": read.number("load-balancer-unhealthy-threshold", 2, 5, 3),
        "healthyThreshold": read.number("load-balancer-healthy-threshold", 2, 5, 3),
    }


def _http(read: AnnotationReader) -> frozenset[int]:
    remedy = "give ports of the Service, such as 80,8080"
    return frozenset(
        int(one)
        for one in read.names("load-balancer-http-ports", _PORT, remedy)
        if _PORT.fullmatch(one)
    )


def _bandwidth(read: AnnotationReader) -> Bandwidth:
    name = read.form("elastic-ip-name", _NAME, _NAMING)
    asked_payment = read.choice("elastic-ip-payment-timing", (PREPAID, POSTPAID))
    asked_billing = read.choice("elastic-ip-billing-method", (_BY_TRAFFIC, _BY_BANDWIDTH))
    payment = asked_payment or POSTPAID
    billing = asked_billing or _BY_TRAFFIC
    months = 0
    if payment == PREPAID:
        if asked_billing:
            read.wrong("elastic-ip-billing-method", "remove it: the address is prepaid")
        billing = ""
        months = read.number("elastic-ip-reservation-length", 1, 36, 0)
        if months not in _MONTHS:
            shown = ", ".join(map(str, _MONTHS))
            read.wrong("elastic-ip-reservation-length", f"give one of {shown} months")
    widest = _WIDEST[billing or _BY_BANDWIDTH]
    megabits = read.number("elastic-ip-bandwidth-in-mbps", 1, widest, None)
    return Bandwidth(
        payment=payment,
        billing=billing,
        megabits=megabits or widest,
        months=months,
        is_asked=megabits is not None,
        asked=(asked_payment, asked_billing),
        name=name,
    )
