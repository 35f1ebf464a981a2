"""Call CloudStack: one address, signed requests, lists in pages, jobs.

Everything is sent as POST: lists of ids can be long, keys do not end in the logs of proxies, and
newer CloudStacks can be told to take nothing else for changes.
"""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import ErrorBody, Reason, cloud_error
from proreus.cloudprovider.requests import Request, form_body
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.cloudstack.config import CloudStackConfig
from proreus.providers.cloudstack.errors import error_body, read_error
from proreus.providers.cloudstack.operations import ALL
from proreus.providers.cloudstack.signing import signed

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

Described = Mapping[str, Any]
"""An object as CloudStack describes it."""

_DONE, _FAILED = 1, 2
_ALL_PROJECTS = "-1"
"""With `listall`, the account's own objects, too (documentation of listVirtualMachines)."""


class Job(msgspec.Struct, frozen=True):
    """A job that a command has begun; `id` is "" if it was done at once.

    Attributes:
        command: The command that began the job.
        id: The id of the job.
        object: The id of the object that the job makes, where CloudStack says it beforehand, or "".
    """

    command: str
    id: str
    object: str = ""


class Api:
    """A session with one CloudStack, in one project or account."""

    def __init__(self, config: CloudStackConfig, context: "Context") -> None:
        """Keep settings and context; send nothing yet.

        Raises:
            ConfigError: A certificate or key file cannot be used.
        """
        self._settings = config.global_
        self._context = context
        self._version: tuple[int, ...] = ()
        self._turn = asyncio.Lock()
        timeout = config.client.timeout.total_seconds()
        self._client = RestClient(
            context,
            self._settings.api_url,
            sign=self._signed,
            read_error=read_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=configured_tls(
                ca_file=config.client.ca_file, verify=not self._settings.ssl_no_verify
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    @property
    def project(self) -> str:
        """The id of the project that the cloud-config names, or ""."""
        return self._settings.project_id.lower()

    async def version(self) -> tuple[int, ...]:
        """Return CloudStack's version, such as (4, 22, 0, 0); it is asked once.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        async with self._turn:
            if not self._version:
                answer = await self._send("listCapabilities", {}, read=True)
                text = str((answer.get("capability") or {}).get("cloudstackversion") or "")
                numbers = text.partition("-")[0].split(".")
                if not numbers[0].isdecimal():
                    raise CloudError(f"listCapabilities: {text!r} is not a version of CloudStack")
                self._version = tuple(int(one) for one in numbers if one.isdecimal())
        return self._version

    async def listed(
        self,
        command: str,
        kind: str,
        parameters: Mapping[str, str] | None = None,
        *,
        everywhere: bool = False,
    ) -> list[Described]:
        """Return all objects of a list, from all pages, of the project, or else the account.

        The first request lets CloudStack choose how many objects it shows at once; the requests for
        more ask for pages of just that size, which it surely takes.

        Args:
            command: The command of the API, such as "listNetworks".
            kind: The name of the list in the answer, such as "network".
            parameters: The parameters that select the objects.
            everywhere: Whether the objects of the account and of all its projects are asked for.

        Raises:
            CloudError: A page could not be read, or the list changed while it was read.
        """
        asked = {"listall": "true", **(parameters or {})}
        placed = {**asked, "projectid": _ALL_PROJECTS} if everywhere else self.in_project(asked)
        return await self._pages(command, kind, placed)

    async def members(
        self, command: str, kind: str, id_: str, *, by: str = "id"
    ) -> list[Described]:
        """Return a list about one object, which takes no project; `by` is the id's parameter."""
        return await self._pages(command, kind, {by: id_})

    async def start(self, command: str, parameters: Mapping[str, str]) -> Job:
        """Begin a change; return its job.

        Raises:
            CloudError: CloudStack refuses, or does not answer; without an answer the outcome is
                unknown.
        """
        answer = await self._send(command, parameters, read=False)
        return Job(command, str(answer.get("jobid") or ""), str(answer.get("id") or ""))

    async def result(self, job: Job) -> Described | Pending:
        """Return what a job has done, or that CloudStack still works on it.

        Raises:
            CloudError: The job failed, or CloudStack gives no usable answer.
        """
        if not job.id:
            return {}
        answer = await self._send("queryAsyncJobResult", {"jobid": job.id}, read=True)
        status, result = answer.get("jobstatus"), answer.get("jobresult")
        said: dict[str, Any] = result if isinstance(result, dict) else {"errortext": str(result)}
        if status == _DONE:
            return said
        if status == _FAILED:
            parsed = error_body({"errorcode": answer.get("jobresultcode"), **said})
            if parsed.reason in {Reason.UNAUTHORIZED, Reason.FORBIDDEN}:
                # Our request was good: it is the job that has ended so.
                parsed = ErrorBody(parsed.code, parsed.message, Reason.UNKNOWN)
            raise cloud_error(f"cloudstack.{job.command}", 0, parsed)
        return Pending(0.0, f"CloudStack works on {job.command}")

    def in_project(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Return parameters with the project, if there is one: for commands that take it."""
        project = self._settings.project_id
        return {**parameters, **({"projectid": project} if project else {})}

    async def _pages(
        self, command: str, kind: str, parameters: Mapping[str, str]
    ) -> list[Described]:
        found: dict[str, Described] = {}
        size, total = 0, 0

        async def page(number: str) -> tuple[Sequence[Described], str]:
            nonlocal size, total
            more = {"page": number, "pagesize": str(size)} if number else {}
            answer = await self._send(command, {**parameters, **more}, read=True)
            items = answer.get(kind) or []
            found.update({_identity(one): one for one in items})
            if not number:
                size, total = len(items), int(answer.get("count") or len(items))
            is_last = not items or len(found) >= total
            return items, "" if is_last else str(int(number or 1) + 1)

        await pages(f"cloudstack.{command}", page)
        if size and len(found) < total:
            raise CloudError(
                f"cloudstack.{command}: the list changed while it was read: {len(found)} of"
                f" {total} objects were shown; it is read again"
            )
        return list(found.values())

    async def _send(self, command: str, parameters: Mapping[str, str], *, read: bool) -> Described:
        if command not in ALL:
            raise LookupError(f"the command {command} is not in providers/cloudstack/operations.py")
        request = Request(
            f"cloudstack.{command}",
            "POST",
            self._settings.api_url,
            {"command": command, **parameters},
            read=read,
        )
        answer = await self._client.call(request, dict[str, Any])
        inner = answer.get(f"{command.lower()}response")
        if not isinstance(inner, dict):
            raise CloudError(
                f"cloudstack.{command}: the answer is not CloudStack's: is api-url in the"
                " cloud-config right?"
            )
        if "errorcode" in inner:
            # Some releases say an error with the status 200.
            raise cloud_error(f"cloudstack.{command}", HTTPStatus.OK, error_body(inner))
        return inner

    def _signed(self, request: Request) -> Request:
        plain = {name: str(value) for name, value in request.query.items()}
        whole = signed(
            plain,
            api_key=self._settings.api_key,
            secret=self._settings.secret_key,
            now=self._context.now(),
        )
        return msgspec.structs.replace(request, query={}, body=form_body(whole))


def _identity(one: Described) -> str:
    """Return what tells an object of a list from all others; tags have no id."""
    return str(one.get("id") or f"{one.get('resourceid')} {one.get('key')}")
