"""Record on a load balancer what it was made from, for clouds whose listings do not show it.

A cloud whose listing shows a load balancer whole, as `simulated` and `local` do, has a fingerprint
that is *observed*. Elsewhere `ensure` leaves a digest of the desired state on the load balancer, as
a tag that `list_owned` reads: a fingerprint that is *recorded* (`OwnedObject.recorded`). It says
that nothing has to be done, as long as nobody else changes anything in the cloud; so the framework
ensures such Services nevertheless, each once a day.

    record = Record(tags.get(MARK_FINGERPRINT, ""), write)
    actual = await converge(actual, steps, take, before=record.clear)
    ...                                             # whatever else is changed: after `clear`, too
    await record.keep(desired_digest(desired, *inputs, ingress=answer.ingress))

It must never lie. `clear` takes the record away before the first change and `keep` writes it after
the last, so a process that ends in between leaves none, and the Service is ensured. What has no
record yet, such as a new load balancer, costs one call more, a change two, and one that is found as
desired none. Deletion does not clear it: while the API still has such a Service, its status has no
address or it has a deletion timestamp, and no fingerprint is believed of either.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from proreus import __version__
from proreus.cloudprovider.errors import Unauthenticated
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.cloudprovider.refused import Reason, Refused
from proreus.kube.objects import LoadBalancerIngress, ObjectMeta

log = logging.getLogger(__name__)

MadeFrom = Callable[[Sequence[LoadBalancerIngress]], str]
"""`desired_digest` of one load balancer, by the addresses that `ensure` answers with."""

_LENGTH: Final = 16
_FOR_GOOD: Final = frozenset({Reason.FORBIDDEN, Reason.INVALID})


def desired_digest(
    desired: LoadBalancer,
    *inputs: object,
    ingress: Sequence[LoadBalancerIngress] | None = None,
    version: str = __version__,
) -> str:
    """Digest everything that a load balancer is made from. Pure.

    The Service counts with its identity and its spec; its annotations only as `inputs`, since most
    of them are not about load balancers.

    Args:
        desired: The desired load balancer, with the hosts.
        inputs: All other inputs of the decision: the annotations as the provider reads them, the
            parts of the cloud-config that are about load balancers (never a secret), and where the
            provider is a package of its own its version.
        ingress: The addresses that `ensure` answers with; by default those in the Service's status.
            A status with other addresses than were recorded is to be written again.
        version: The version of the code. The next version may give an annotation another meaning,
            and nobody would remember to say so here: so an upgrade ensures each Service once.
    """
    points = desired.ref.last_ingress if ingress is None else ingress
    meta = desired.service.metadata
    known = msgspec.structs.replace(
        desired,
        ref=msgspec.structs.replace(desired.ref, last_ingress=(), service=None),
        service=msgspec.structs.replace(
            desired.service,
            metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
            status=type(desired.service.status)(),
        ),
    )
    addresses = sorted(point.ip or point.hostname for point in points)
    whole = (version, known, addresses, inputs)
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()[:_LENGTH]


class Record:
    """The record on one load balancer, within one `ensure`."""

    def __init__(self, shown: str, write: Callable[[str], Awaitable[None]]) -> None:
        """Begin with the record that the load balancer shows.

        Args:
            shown: The record on the load balancer; "" if there is no record, or no load balancer.
            write: Writes another record, "" to remove it. Raises a CloudError if it cannot.
        """
        self._shown = shown
        self._write = write
        self._turn = asyncio.Lock()
        self.is_cleared = False

    async def clear(self) -> None:
        """Remove the record, if it is still there. To be called before every change.

        Raises:
            CloudError: The record cannot be removed: then nothing may be changed.
        """
        async with self._turn:
            if self._shown:
                await self._write("")
                self._shown = ""
                self.is_cleared = True

    async def keep(
        self, made_from: str, write: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """Write what the load balancer is made from now, after the last change.

        A cloud that will not have it, since there are too many tags or a right is missing, keeps
        nobody from being served: then there is no record, and the next look ensures once more.

        Args:
            made_from: The digest of what the load balancer is made from now.
            write: Writes the record on a load balancer that did not exist at first.

        Raises:
            CloudError: Nobody can tell whether the record was written, or another try may write it.
        """
        if made_from == self._shown:
            return
        try:
            await (write or self._write)(made_from)
        except (Refused, Unauthenticated) as error:
            if isinstance(error, Refused) and error.reason not in _FOR_GOOD:
                raise
            log.info("The fingerprint of a load balancer cannot be recorded: %s", error)
        else:
            self._shown = made_from
