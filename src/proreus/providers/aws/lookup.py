"""Look instances of EC2 up by their ids: what EC2 shows, lacks, or says nothing of."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.lookups import attempt, in_parts, some_of
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.api import Api
from proreus.providers.aws.identity import Described
from proreus.providers.aws.names import ids_in

MOST_IDS = 500
"""The most ids in one DescribeInstances, as the official manager has; EC2 advises 1,000."""
MOST_VALUES = 200
"""The most values of one filter (EC2 API reference, Filter)."""
MOST_RESULTS = 1000
"""The most instances on one page (EC2 API reference, DescribeInstances)."""

MOST_ALONE = 16
"""Instances that a listing leaves out, and that are then asked for by themselves."""

_ABSENT = "InvalidInstanceID.NotFound"
_MALFORMED = "InvalidInstanceID.Malformed"
_ROUNDS = 3

Answer = Described | CloudError | None
"""The instance; why it is not known; or None: EC2 says that there is none."""


async def by_id(api: Api, ids: Collection[str]) -> dict[str, Answer]:
    """Look instances up by id; return what EC2 answers about each id.

    One bad id refuses a whole call, but EC2 names it: the others are asked for again. Only an id
    that is named as not found is absent.

    Raises:
        CloudError: EC2 gives no usable answer.
    """
    found: dict[str, Answer] = {}
    left = set(ids)
    for _ in range(_ROUNDS):
        if left:
            answers = await _asked(api, left)
            found |= answers
            left -= answers.keys()
    if left:
        found |= await _listed(api, left)
    return found


async def _asked(api: Api, ids: Collection[str]) -> dict[str, Answer]:
    """Make one call; return its answers: about the ids that it refuses, or else about all."""
    try:
        shown = [
            one
            for part in in_parts(ids, MOST_IDS)
            for one in await instances(api, InstanceIds=part)
        ]
    except Refused as error:
        named = ids_in(error.text) & set(ids)
        if named and error.code == _ABSENT:
            return dict.fromkeys(named)
        if named and error.code == _MALFORMED:
            return {id_: _malformed(id_) for id_ in named}
        raise
    return _with_unknown(ids, shown)


async def _listed(api: Api, ids: Collection[str]) -> dict[str, Answer]:
    """Return what a filtered listing shows, where refusals name too few ids.

    A listing may leave out instances that exist, so some of those that it leaves out are asked for
    singly, others each time; about the rest nothing is known.
    """
    shown = [
        one
        for part in in_parts(ids, MOST_VALUES)
        for one in await instances(
            api, Filters=[{"Name": "instance-id", "Values": part}], MaxResults=MOST_RESULTS
        )
    ]
    found = _with_unknown(ids, shown)
    left_out = [id_ for id_, one in found.items() if isinstance(one, CloudError)]
    alone = some_of(left_out, MOST_ALONE)
    answers = await asyncio.gather(*(attempt(_asked, api, {id_}) for id_ in alone))
    for id_, answer in zip(alone, answers, strict=True):
        found |= {id_: answer} if isinstance(answer, CloudError) else answer
    return found


def _with_unknown(ids: Iterable[str], shown: Iterable[Described]) -> dict[str, Answer]:
    found: dict[str, Answer] = {
        id_: CloudError(f"EC2 left {id_} out of its answer: it is unknown, not gone") for id_ in ids
    }
    return found | {str(one["InstanceId"]): one for one in shown}


def _malformed(id_: str) -> InvalidRequest:
    return InvalidRequest(
        f"EC2 does not take {id_} as an instance id ({_MALFORMED}): spec.providerID, or the name of"
        " the Node, must hold the id of an instance"
    )


async def instances(api: Api, **parameters: Any) -> list[Described]:
    """Read all pages of DescribeInstances and return its instances.

    Raises:
        CloudError: EC2 gives no usable answer.
    """
    found = await api.pages("ec2", "DescribeInstances", "Reservations", **parameters)
    return [one for reservation in found for one in reservation.get("Instances") or ()]
