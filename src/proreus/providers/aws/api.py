"""Call AWS: every call goes through `Context.call`, and botocore repeats none of them.

botocore signs, sends and decodes, and checks each request against AWS' own model of the
operation. It blocks, so a call takes a thread; its retries are off, since the framework's bucket
is to see each refusal. EC2 counts calls for each action by itself, so each operation has a bucket
of its own: its name is the quota in `Context.call` and in the metrics.
"""

import functools
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore import loaders, xform_name
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError, Throttled
from proreus.cloudprovider.paging import pages
from proreus.providers.aws import metrics
from proreus.providers.aws.config import AWSConfig
from proreus.providers.aws.errors import status_of, translated
from proreus.providers.aws.operations import ALL

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

Answer = Mapping[str, Any]
"""The answer of an operation, as botocore decodes it."""

_TOKENS = {
    "ec2": ("NextToken", "NextToken"),
    "elb": ("Marker", "NextMarker"),
    "elbv2": ("Marker", "NextMarker"),
}
"""The parameter and the field with which the next page is asked for, by service."""
_READS = ("Describe", "Get", "List")
_SESSION_NAME = "proreus"
_RENEW_BEFORE = timedelta(minutes=10)
_MOST_CONNECTIONS = 50


class _Assumed(Credentials):  # type: ignore[misc]  # botocore has no types
    """The credentials of the assumed role, replaced by `put` for all clients."""

    def __init__(self) -> None:
        super().__init__("", "")
        self._current: Any = None

    def put(self, issued: Mapping[str, Any]) -> None:
        self._current = ReadOnlyCredentials(
            issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"]
        )

    def get_frozen_credentials(self) -> Any:
        """Return the credentials with which a request is signed."""
        return self._current


class Api:
    """A session with AWS in one region."""

    def __init__(self, config: AWSConfig, region: str, context: "Context") -> None:
        """Keep config, region and context; send nothing yet.

        Args:
            config: The cloud-config.
            region: The region of all calls.
            context: The framework's gate.
        """
        self.region = region
        self._config = config
        self._context = context
        self._deadline = config.client.deadline
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._clients_lock = threading.Lock()
        self._assumed = _Assumed() if config.global_.role_arn else None
        self._role = Credential(self._assume_role, now=context.now, renew_before=_RENEW_BEFORE)

    @property
    def context(self) -> "Context":
        """The provider's context, through which every call goes."""
        return self._context

    async def call(self, service: str, operation: str, **parameters: Any) -> Answer:
        """Make one request and return its answer.

        Args:
            service: The service: ec2, elb, elbv2 or sts.
            operation: The operation, such as DescribeInstances. Those that begin with Describe, Get
                or List are reads.
            parameters: The operation's parameters, by AWS' names.

        Raises:
            Throttled: The quota is used up.
            Unauthenticated: The credentials are wrong or lack a right.
            CallTimeout: No answer in time.
            Refused: Any other error of AWS; `code` says which.
            CloudError: No answer at all, or a request that AWS' model of it forbids.
        """
        if self._assumed is not None:
            self._assumed.put(await self._role.get())
        return await self._call(service, operation, parameters)

    async def pages(
        self, service: str, operation: str, field: str, **parameters: Any
    ) -> list[Mapping[str, Any]]:
        """Read all pages of a list; return what stands in `field`, of all of them.

        Args:
            service: The service: ec2, elb or elbv2.
            operation: The operation, such as DescribeSubnets.
            field: The field of the answer that holds the list, such as Subnets.
            parameters: The operation's parameters, the same for every page.

        Raises:
            CloudError: A page could not be read (see `call`), so nothing is returned.
        """
        parameter, next_field = _TOKENS[service]

        async def page(token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
            more = {parameter: token} if token else {}
            answer = await self.call(service, operation, **parameters, **more)
            return answer.get(field) or (), answer.get(next_field) or ""

        return await pages(f"{service}.{operation}", page)

    async def close(self) -> None:
        """Close the connections; threads that still wait for an answer keep theirs."""
        await self._role.close()
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    async def _call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        name = f"{service}.{operation}"
        if name not in ALL:
            raise NotImplementedError(f"{name} is not in operations.py, so the IAM policy lacks it")
        with metrics.observed(operation):
            return await self._context.call(
                service,
                operation,
                lambda: self._send(service, operation, parameters),
                read=operation.startswith(_READS),
                deadline=self._deadline,
                quota=name,
                blocking=True,
            )

    def _send(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send a request in this thread."""
        try:
            method = getattr(self._client(service), xform_name(operation))
            answer: Mapping[str, Any] = method(**parameters)
        except (ClientError, BotoCoreError, ResponseParserError, OSError) as error:
            raised = translated(f"{service}.{operation}", error)
            metrics.answered(service, operation, status_of(error))
            metrics.refused(operation, throttled=isinstance(raised, Throttled))
            raise raised from error
        metadata = answer["ResponseMetadata"]
        metrics.answered(service, operation, metadata["HTTPStatusCode"])
        if not metadata.get("RequestId"):
            # The page of a proxy, too, can be read as an answer, in which nothing is to be found.
            metrics.refused(operation, throttled=False)
            raise CloudError(
                f"{service}.{operation}: the answer did not come from AWS (it has no "
                "request id): is a proxy in between, or the endpoint wrong?"
            )
        return answer

    def _client(self, service: str) -> Any:
        """Return the client of a service, made once, in the thread that needs it first."""
        with self._clients_lock:
            if service not in self._clients:
                self._clients[service] = self._new_client(service)
            return self._clients[service]

    def _new_client(self, service: str) -> Any:
        if self._session is None:
            self._session = _new_session()
        settings = self._config.client
        override = self._config.override(service, self.region)
        assumed = self._assumed if service != "sts" else None
        session = self._session if assumed is None else _with_credentials(assumed)
        client = session.create_client(
            service,
            region_name=self.region,
            endpoint_url=override.url.strip() if override else None,
            config=Config(
                connect_timeout=settings.connect_timeout.total_seconds(),
                read_timeout=settings.timeout.total_seconds(),
                max_pool_connections=_MOST_CONNECTIONS,
                retries={"total_max_attempts": 1, "mode": "standard"},
                user_agent_extra="proreus kubernetes-cloud-controller-manager",
            ),
        )
        signing = {
            "region": override.signing_region.strip() if override else "",
            "signing_name": override.signing_name.strip() if override else "",
        }

        def sign_otherwise(request: Any, **_: Any) -> None:
            given = {key: value for key, value in signing.items() if value}
            request.context["signing"] = {**request.context.get("signing", {}), **given}

        if any(signing.values()):
            client.meta.events.register("before-sign", sign_otherwise)
        if service == "sts":
            client.meta.events.register("before-call.sts.AssumeRole", self._add_source)
        return client

    def _add_source(self, params: Any, **_: Any) -> None:
        """Add on whose behalf the role is assumed, for conditions in its trust policy."""
        settings = self._config.global_
        if settings.source_arn:
            params["headers"]["x-amz-source-arn"] = settings.source_arn
            params["headers"]["x-amz-source-account"] = settings.source_account

    async def _assume_role(self) -> Issued[Mapping[str, Any]]:
        answer = await self._call(
            "sts",
            "AssumeRole",
            {"RoleArn": self._config.global_.role_arn, "RoleSessionName": _SESSION_NAME},
        )
        issued = answer["Credentials"]
        return Issued(issued, issued["Expiration"])


def _new_session() -> Any:
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@functools.cache
def _loader(path: str | None) -> Any:
    """Return botocore's loader of AWS' models of services, one for all sessions."""
    return loaders.create_loader(path)


def _with_credentials(credentials: Credentials) -> Any:
    session = _new_session()
    session._credentials = credentials  # noqa: SLF001 - it takes none that renew
    return session
