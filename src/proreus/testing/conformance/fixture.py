"""The fixture that a provider author writes: how to make a cloud, and how to break it."""

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.testing.controlplane.certificates import Authority


class NotOffered(Exception):
    """The signal that fixture or provider cannot do what a rule needs; the rule is not tried."""

    def __init__(self, reason: str, lacks: str = "") -> None:
        """Keep the reason and `lacks`, the name in `CloudFixture.lacks` that says it beforehand."""
        super().__init__(reason)
        self.lacks = lacks


class NotTried(Exception):
    """The signal that a rule cannot be tried before another one holds."""


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer to give in place of the cloud's."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class CloudFixture:
    """A cloud to try a provider on; an async context manager, empty when entered.

    Subclass it. `provider`, `create_machines` and `remove_machine` have to be written for a
    provider of machines, `provider` alone for one of load balancers. A method that is left out
    makes its rules "not offered", and so does what `lacks` names: there is no test for them, and
    pytest says so at the end of its output.

    Attributes:
        lacks: The features that the provider or the cloud does not have: "instances",
            "load_balancers", "routes" (capabilities that stay None), "endpoint" (the cloud does not
            speak HTTP), "batches" (`batch_size` is 1), "list_owned" (it raises `NotSupported`),
            "groups" (all Services are one group), "preview" (there is none) or "fingerprint" (it is
            "").
        endpoint: URL of the cloud's HTTP API, set once the fixture is entered. With it, requests
            are seen, refused and left unanswered.
        authority: The authority that signs the certificates of proxies before the cloud, which then
            speak TLS: set it once the fixture is entered, and let the provider trust it and verify.
            None: they speak plain HTTP. The cloud itself may speak either; if it speaks HTTPS, its
            own certificate is of this authority, too.
        page_size: How many objects the cloud shows at once; None if it shows all.
        timeout: Seconds that a provider waits for the cloud's answer to one request, as
            `provider` has to configure it. Rules about a cloud that never answers make it short.
        patience: Seconds within which a verb must end although the cloud does not answer, with
            such a short `timeout`.
        own_data_path: Whether the provider brings packets to Services itself, so that node ports
            and health checks are not written to a cloud.
        uses_node_ports: Whether the cloud sends packets to the node ports of hosts; some clouds
            leave packets as clients send them, with the load balancer's address and port.
        marks_routes: Whether routes of the cloud can carry the mark of a cluster.
        annotations: The annotations of the Services that load balancers are made for.
        throttled: The cloud's answer when its quota is used up; it asks to wait 120 s.
    """

    lacks: Collection[str] = frozenset()
    endpoint: str = ""
    authority: Authority | None = None
    page_size: int | None = None
    timeout: float = 30.0
    patience: float = 10.0
    own_data_path: bool = False
    uses_node_ports: bool = True
    marks_routes: bool = True
    annotations: Mapping[str, str] = {}
    throttled: Answer = Answer(429, b"{}", {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        """Start the cloud."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the cloud."""

    def provider(self, endpoint: str) -> CloudProvider:
        """Make a provider that is not started yet.

        Args:
            endpoint: The URL of the cloud: `self.endpoint`, or a proxy before it. Give the provider
                `self.timeout`.
        """
        raise NotImplementedError(f"write provider() in {type(self).__name__}")

    async def create_machines(self, names: Sequence[str]) -> None:
        """Start machines of these names, with an address each."""
        del names
        raise NotOffered("create_machines() is not written in the fixture")

    async def remove_machine(self, name: str) -> None:
        """Destroy a machine."""
        del name
        raise NotOffered("remove_machine() is not written in the fixture")

    async def stop_machine(self, name: str) -> None:
        """Shut a machine down and keep it."""
        del name
        raise NotOffered("stop_machine() is not written in the fixture")

    async def objects(self) -> Mapping[str, object]:
        """List all objects that load balancers are made of, whoever made them, by id.

        Without it, the provider's own `list_owned` is believed.
        """
        raise NotOffered("objects() is not written in the fixture")

    async def remove_object(self, id_: str) -> None:
        """Delete one of `objects`, as somebody else would, whatever uses it."""
        del id_
        raise NotOffered("remove_object() is not written in the fixture")

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """Make an object named as the provider names its own, but without marks.

        Where the name is the mark, since it holds the Service's uid and nobody guesses it, the
        object is named alike, with another uid.
        """
        del ref
        raise NotOffered("create_foreign() is not written in the fixture")
