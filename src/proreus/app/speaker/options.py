"""Define the flags of `proreus bgp-speaker`."""

from typing import Annotated, Final

import msgspec

from proreus.app.flag_values import above, at_least, boolean, duration, integer, port
from proreus.app.flags import Flag

GROUP: Final = "speaker"


def endpoint(text: str) -> str:
    """Parse host:port, or 0 for none.

    Raises:
        ValueError: The text is neither host:port nor 0.
    """
    _, colon, number = text.rpartition(":")
    if text != "0" and (not colon or not port(number)):
        raise ValueError("must be host:port, such as 127.0.0.1:10271, or 0")
    return text


class SpeakerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `proreus bgp-speaker`."""

    kubeconfig: Annotated[
        str, Flag(GROUP, "Kubeconfig file for the API server; without it, in-cluster.")
    ] = ""
    master: Annotated[str, Flag(GROUP, "URL of the API server, instead of the kubeconfig's.")] = ""
    cloud_config: Annotated[
        str, Flag(GROUP, "The cloud-config of the provider local, with a section bgp.")
    ] = ""
    node_name: Annotated[
        str, Flag(GROUP, "Name of this machine's Node; without it, the variable NODE_NAME.")
    ] = ""
    frr_sockets: Annotated[str, Flag(GROUP, "Directory with the sockets of FRR's daemons.")] = (
        "/run/frr"
    )
    period: Annotated[float, Flag(GROUP, "Time between two looks at FRR.", duration, above(0))] = (
        5.0
    )
    metrics_bind_address: Annotated[
        str,
        Flag(
            GROUP, "host:port of health and metrics by plain HTTP, open to all; 0 is off.", endpoint
        ),
    ] = "127.0.0.1:10271"
    show: Annotated[
        bool,
        Flag(GROUP, "Show what is announced, why not the rest, and the sessions; end.", boolean),
    ] = False
    roles: Annotated[
        bool, Flag(GROUP, "Print the account, role and binding of speakers, and end.", boolean)
    ] = False
    v: Annotated[int, Flag(GROUP, "Log verbosity: 0 to 10.", integer, at_least(0), short="v")] = 0
