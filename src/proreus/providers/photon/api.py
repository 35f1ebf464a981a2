"""Call Photon Controller: find its API's version and the project, read lists, machines, tasks.

Only GET is sent. That for the networks of a machine begins a task, which is asked for until it
ends.
"""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from proreus.cloudprovider.credential import Credential, bearer
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused, cloud_error
from proreus.cloudprovider.requests import Form, Request
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.photon.config import PhotonConfig
from proreus.providers.photon.documents import (
    Auth,
    Named,
    NamedPage,
    Networks,
    Status,
    Task,
    Vm,
    VmPage,
)
from proreus.providers.photon.errors import VM_NOT_FOUND, error_body, read_error
from proreus.providers.photon.lightwave import Lightwave, Login
from proreus.providers.photon.machines import addresses
from proreus.providers.photon.names import is_id
from proreus.providers.photon.operations import (
    FORMER_NETWORKS,
    GENERATIONS,
    NETWORKS,
    OPERATIONS,
    Generation,
)
from proreus.providers.photon.plan import Addresses, chosen

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")

PATIENCE: Final = 20.0
"""Seconds that the task that reads networks may take."""


class Place(msgspec.Struct, frozen=True):
    """The generation of the API, and the id of the project."""

    generation: Generation
    project: str


class Api:
    """A session with one Photon Controller, in one project."""

    def __init__(self, config: PhotonConfig, login: Login | None, context: "Context") -> None:
        """Keep settings and context; send nothing yet.

        Args:
            config: The cloud-config.
            login: The login whose tokens are sent, or None.
            context: The framework's gate.

        Raises:
            ConfigError: A certificate or key file cannot be used.
        """
        self._settings = config.global_
        self._turn = asyncio.Lock()
        self._place: Place | None = None
        self._generation: Generation | None = None
        self._networks = NETWORKS
        self._lightwave: Lightwave | None = None
        timeout = config.client.timeout.total_seconds()
        tls = configured_tls(ca_file=config.client.ca_file, verify=config.verifies)
        credential = None
        if login is not None:
            self._lightwave = Lightwave(context, login, self._auth, tls=tls, timeout=timeout)
            credential = Credential(self._lightwave.issue, now=context.now, headers=bearer)

        def client(of: Credential[str] | None) -> RestClient:
            return RestClient(
                context,
                self._settings.target,
                credential=of,
                read_error=read_error,
                timeout=timeout,
                connect_timeout=timeout,
                tls=tls,
            )

        self._open = client(None)
        self._client = self._open if credential is None else client(credential)
        """The clients differ in the token: the question where tokens are issued needs none."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
        await self._open.close()
        if self._lightwave is not None:
            await self._lightwave.close()

    async def place(self) -> Place:
        """Return the generation of the API and the project; they are asked for once.

        Raises:
            CloudError: Photon Controller does not answer, or has no such project.
        """
        async with self._turn:
            if self._place is None:
                generation = await self._found()
                self._place = Place(generation, await self._project(generation))
        return self._place

    async def machines(self, name: str = "") -> list[Vm]:
        """Return the machines of the project, from all pages; of one name, if it is given.

        Raises:
            CloudError: A page could not be read.
        """
        place = await self.place()
        path = f"{place.generation.prefix}/projects/{_quoted(place.project)}/vms"
        query = {"name": name} if name else {}

        async def page(at: str) -> tuple[Iterable[Vm], str]:
            request = _get("vms.list", at) if at else _get("vms.list", path, query)
            answer = await self._send(request, VmPage)
            return answer.items, answer.next_page_link or ""

        found = await pages("photon.vms.list", page)
        return list({vm.id: vm for vm in found}.values())

    async def machine(self, id_: str) -> Vm | None:
        """Return a machine; None if Photon Controller itself says that there is none.

        Raises:
            CloudError: Photon Controller gives no usable answer.
        """
        place = await self.place()
        try:
            return await self._send(_get("vms.get", f"{place.generation.prefix}/vms/{id_}"), Vm)
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND and error.code == VM_NOT_FOUND:
                return None
            raise

    async def addresses(self, vm: Vm) -> Addresses:
        """Return the addresses of a machine, by a task that asks its host.

        Raises:
            CloudError: The task failed, takes too long, or cannot be asked for.
        """
        place = await self.place()
        begun: list[Task] = [await self._begin(place.generation, vm)]
        path = f"{place.generation.prefix}/tasks/{_quoted(begun[0].id)}"

        async def poll() -> Task | Pending:
            task = begun.pop() if begun else await self._send(_get("tasks.get", path), Task)
            if task.state in {"COMPLETED", "ERROR"}:
                return task
            return Pending(0.0, f"Photon Controller still reads the networks of {vm.name}")

        task = await finished(poll, patience=PATIENCE)
        if isinstance(task, Pending):
            raise CloudError(
                f"photon.vms.networks: the task of the machine {vm.name} ({vm.id}) has not ended"
                f" in {PATIENCE:g} s"
            )
        return _result(task, vm)

    async def _begin(self, generation: Generation, vm: Vm) -> Task:
        """Begin the task; before July 2016 its path had another word."""
        word = self._networks
        path = f"{generation.prefix}/vms/{_quoted(vm.id)}"
        try:
            return await self._client.call(_get("vms.networks", f"{path}/{word}"), Task)
        except Refused as error:
            if generation.prefix or word == FORMER_NETWORKS or not _is_unknown_path(error):
                raise
        request = _get("vms.networks", f"{path}/{FORMER_NETWORKS}")
        task = await self._client.call(request, Task)
        self._networks = FORMER_NETWORKS
        return task

    async def _send(self, request: Request, form: Form[T]) -> T:
        try:
            return await self._client.call(request, form)
        except Refused as error:
            if _is_unknown_path(error):
                # Photon Controller was exchanged for one of another age, or the project is gone.
                self._place = self._generation = None
                self._networks = NETWORKS
            raise

    # Where everything is

    async def _found(self) -> Generation:
        if self._settings.authentication:
            generation, _ = await self._first("auth.get", Auth)
        else:
            generation, _ = await self._first("status.get", Status)
        return generation

    async def _auth(self) -> Auth:
        """Ask where tokens are issued, which needs no token."""
        return (await self._first("auth.get", Auth))[1]

    async def _first(self, name: str, form: type[T]) -> tuple[Generation, T]:
        """Return the answer of the first generation of the API that has one, and that generation.

        It is remembered. What is said of tokens needs none, so that who asks for one there has
        another path.

        Raises:
            CloudError: No generation gives one, or there is no answer.
        """
        known = self._generation
        refused: CloudError | None = None
        for generation in GENERATIONS if known is None else (known,):
            path = generation.auth if form is Auth else generation.status
            try:
                answer = await self._open.call(_get(name, path), form)
            except Refused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
            except Unauthenticated as error:
                if form is not Auth:
                    raise
                refused = error
            else:
                self._generation = generation
                return generation, answer
        self._generation = None
        raise refused or CloudError(
            f"photon.{name}: there is no API of Photon Controller at {self._settings.target}:"
            " check target in the cloud-config"
        )

    async def _project(self, generation: Generation) -> str:
        """Return the id of the project; a project without a tenant is looked for by its id first.

        Raises:
            CloudError: There is no such project, or there are several.
        """
        wanted, tenant = self._settings.project, self._settings.tenant
        if not tenant and is_id(wanted):
            try:
                path = f"{generation.prefix}/projects/{wanted}"
                return (await self._client.call(_get("projects.get", path), Named)).id
            except Refused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        tenants = await self._named("tenants.list", f"{generation.prefix}/tenants")
        if tenant:
            ids = [_or_raise(chosen("tenant", tenant, "Photon Controller", tenants))]
        else:
            ids = [one.id for one in tenants]
        projects: list[Named] = []
        for id_ in ids:
            path = f"{generation.prefix}/tenants/{_quoted(id_)}/projects"
            projects += await self._named("projects.list", path)
        place = f"the tenant {tenant}" if tenant else "any tenant"
        return _or_raise(chosen("project", wanted, place, projects))

    async def _named(self, name: str, path: str) -> list[Named]:
        async def page(at: str) -> tuple[Iterable[Named], str]:
            answer = await self._client.call(_get(name, at or path), NamedPage)
            return answer.items, answer.next_page_link or ""

        return await pages(f"photon.{name}", page)


def _get(name: str, path: str, query: dict[str, str] | None = None) -> Request:
    if name not in OPERATIONS:
        raise LookupError(f"{name} is not in the table of operations")
    return Request(f"photon.{name}", "GET", path, query or {})


def _quoted(id_: str) -> str:
    """Return an id as a part of a path: it comes from an answer."""
    return quote(id_, safe="")


def _is_unknown_path(error: Refused) -> bool:
    return error.status == HTTPStatus.NOT_FOUND and error.code in {"", "NotFound"}


def _or_raise(id_: str | CloudError) -> str:
    if isinstance(id_, CloudError):
        raise id_
    return id_


def _result(task: Task, vm: Vm) -> Addresses:
    """Return the result of a finished task.

    Raises:
        CloudError: The task failed, or has no result.
    """
    if task.state == "ERROR":
        errors = [error for step in task.steps or () for error in step.errors or ()]
        parsed = error_body(errors[0]) if errors else None
        # Of a host that does not know the machine, too: that says nothing about the machine.
        text = f"the machine {vm.name} ({vm.id}): {parsed.message if parsed else 'no reason given'}"
        code = parsed.code if parsed else ""
        raise cloud_error("photon.vms.networks", 0, None, text=f"{code} {text}".strip())
    try:
        return addresses(msgspec.json.decode(task.resource_properties, type=Networks))
    except msgspec.DecodeError as error:
        raise CloudError(
            f"photon.tasks.get: the task {task.id} does not show the networks of {vm.name}: {error}"
        ) from error
