"""Define the flags of `proreus doctor`: the manager's own, to be copied, and a few more."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from proreus.app.flag_values import at_least, boolean, duration
from proreus.app.flags import Flag, flags_of, named
from proreus.app.options import Options

DOCTOR = "doctor"

_READ_OFF_THE_MANAGER: Final = (
    "leader_elect",
    "leader_elect_resource_name",
    "leader_elect_resource_namespace",
    "load_balancer_classes",
    "classless_load_balancers",
    "controllers",
    "webhooks",
    "use_service_account_credentials",
    "leader_elect_per_controller",
    "secure_port",
    "authentication_skip_lookup",
    "cloud_config_secret",
    "allow_untagged_cloud",
)


class DoctorOptions(Options, frozen=True, kw_only=True):
    """The flags of `proreus doctor`."""

    namespace: Annotated[str, Flag(DOCTOR, "Namespace of the manager.", short="n")] = "kube-system"
    node: Annotated[str, Flag(DOCTOR, "Report only on this node.")] = ""
    service: Annotated[
        str, Flag(DOCTOR, "Report only on this Service: namespace/name or name.")
    ] = ""
    patience: Annotated[
        float,
        Flag(
            DOCTOR,
            "How long a manager may take to handle a new node or Service.",
            duration,
            at_least(0),
        ),
    ] = 60.0
    json: Annotated[bool, Flag(DOCTOR, "Print JSON.", boolean)] = False


def as_stated(options: DoctorOptions, stated: Mapping[str, str]) -> DoctorOptions:
    """Fill in flags from the manager's own command line, where none were given."""
    defaults = DoctorOptions()
    table = flags_of(DoctorOptions)
    filled: dict[str, Any] = {}
    for field in _READ_OFF_THE_MANAGER:
        text = stated.get(named(field))
        if text is None or getattr(options, field) != getattr(defaults, field):
            continue
        try:
            filled[field] = table[field].parse(text)
        except ValueError:
            continue  # the manager itself complains about it
    return msgspec.structs.replace(options, **filled)
