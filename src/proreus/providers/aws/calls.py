"""Send the calls that the plans of load balancers ask for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.cloudprovider.lookups import all_but_refused
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.names import ids_in

if TYPE_CHECKING:
    from proreus.providers.aws.api import Answer, Api


class Call(msgspec.Struct, frozen=True):
    """A call of AWS: the operation of a service and its parameters."""

    service: str
    operation: str
    parameters: Mapping[str, Any]


async def send(api: "Api", call: Call) -> "Answer":
    """Send a call and return the answer.

    Raises:
        CloudError: AWS refuses.
    """
    return await api.call(call.service, call.operation, **call.parameters)


async def send_instances(api: "Api", call: Call, field: str, code: str) -> dict[str, str]:
    """Send a call about instances; return by id why AWS refuses some, without which it is sent.

    Args:
        api: The client of AWS.
        call: The call that registers or deregisters them.
        field: The parameter of the call that lists them.
        code: The code of the error that names the instances which AWS does not know, or which
            cannot be targets.

    Raises:
        CloudError: AWS refuses for another reason.
    """
    documents = {str(next(iter(given.values()))): given for given in call.parameters[field]}

    async def send_some(ids: list[str]) -> None:
        some = {**call.parameters, field: [documents[id_] for id_ in ids]}
        await api.call(call.service, call.operation, **some)

    def unfit(error: Refused) -> frozenset[str]:
        return ids_in(error.text) if error.code == code else frozenset()

    return await all_but_refused(send_some, documents, unfit)


def missing(desired: Mapping[str, str], observed: Mapping[str, str]) -> dict[str, str]:
    """Return the tags or attributes that an object lacks or has with another value. Pure."""
    return {key: value for key, value in desired.items() if observed.get(key) != value}
