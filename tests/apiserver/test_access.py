"""Who may ask us, as a real API server with RBAC decides it."""

import asyncio
import json
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from proreus.app.access import delegated_access
from proreus.app.options import Options
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import CONFIG_MAPS, Request, Resource
from proreus.serving import endpoints
from proreus.serving.authorities import NAME, NAMESPACE, AuthoritiesError
from proreus.serving.health import Health
from proreus.serving.servers import serve
from proreus.serving.tls import ServerTLS
from proreus.serving.tls_settings import Settings
from proreus.testing.controlplane import ControlPlane
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.waiting import until

from .site import Audited, Site
from .test_serving import held_port, secure

RBAC: Final = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, type=dict)
BINDINGS = Resource(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False, type=dict
)
READERS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True, type=dict)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, type=dict)

QUICK = Options(
    authentication_token_webhook_cache_ttl=0.1,
    authorization_webhook_cache_authorized_ttl=0.1,
    authorization_webhook_cache_unauthorized_ttl=0.1,
)
SLOW = msgspec.structs.replace(
    QUICK,
    authentication_token_webhook_cache_ttl=3600.0,
    authorization_webhook_cache_authorized_ttl=3600.0,
)


class World:
    """An API server, an account that scrapes, and an account that asks about others."""

    def __init__(self, plane: ControlPlane, client: Client, directory: Path) -> None:
        self.plane = plane
        self.client = client
        self.directory = directory
        self.suffix = uuid.uuid4().hex[:8]
        self.scraper = f"scraper-{self.suffix}"
        self.reviewer = f"reviewer-{self.suffix}"
        self.audit_start = plane.audit_log.stat().st_size

    async def bind(self, role: str, **subject: str) -> str:
        """Let a subject have a ClusterRole; the binding's name."""
        name = f"{role.replace(':', '-')}-{uuid.uuid4().hex[:8]}"
        body = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }
        await self.client.create(BINDINGS, body)
        return name

    async def may_scrape(self) -> str:
        """Let the scraper read the metrics; the binding's name."""
        return await self.bind(
            self.scraper, kind="ServiceAccount", name=self.scraper, namespace="default"
        )

    async def token(self) -> str:
        """A token of the scraper."""
        path = ACCOUNTS.named_path("default", self.scraper, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        request = Request(
            "POST", path, body=msgspec.json.encode(body), content_type="application/json"
        )
        answer = await self.client.send(request, dict[str, Any])
        return str(answer["status"]["token"])

    @asynccontextmanager
    async def door(
        self, options: Options = QUICK, user: str = "", *groups: str
    ) -> AsyncIterator["Door"]:
        """Our server, which asks the API server as the reviewer (or as that user)."""
        own = config.load(str(self.plane.kubeconfig_for(user or self.reviewer, groups)), env={})
        health, tls = Health(), ServerTLS(Settings())
        async with delegated_access(options, own, health) as access:

            def take() -> None:
                tls.set_client_cas(access.authorities.pem)

            take()
            access.authorities.on_change(take)
            application = endpoints.application(
                health, dict, profiling=False, middlewares=(access.middleware,)
            )
            async with serve(
                application, "127.0.0.1", 0, flag="--test", tls=tls, any_port=True
            ) as port:
                yield Door(port, self.directory)

    def asked(self, resource: str) -> int:
        """How many reviews the reviewer has asked for."""
        with self.plane.audit_log.open("rb") as log:
            log.seek(self.audit_start)
            lines = [
                line for line in log if self.reviewer.encode() in line and line.endswith(b"\n")
            ]
        found = [msgspec.json.decode(line, type=Audited) for line in lines]
        return sum(
            one.object_ref.resource == resource and one.stage == "ResponseComplete" for one in found
        )

    async def publish(self, **data: str | None) -> None:
        """Change the ConfigMap by which the cluster says whom to trust."""
        change = {"data": {f"requestheader-{key}": value for key, value in data.items()}}
        await self.client.patch(CONFIG_MAPS, NAME, Patch(PatchType.MERGE, change), NAMESPACE)


class Door:
    """A client of our server."""

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.directory = directory

    async def get(
        self, path: str, shown: tuple[bytes, bytes] | None = None, token: str = "", **headers: str
    ) -> tuple[int, str]:
        """The status and what is told, of a request on a new connection."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if shown is not None:
            pair = self.directory / "client.pem"
            pair.write_bytes(b"".join(shown))
            tls.load_cert_chain(pair)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            session.get(f"https://127.0.0.1:{self.port}{path}", headers=headers) as answer,
        ):
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text)["message"] if is_json else text

    async def turns(self, status: int, path: str, token: str) -> str:
        """Wait for this status; what is told with it."""

        async def attempt() -> tuple[int, str] | None:
            found = await self.get(path, token=token)
            return found if found[0] == status else None

        return (await until(f"{path} is {status}", attempt))[1]


@pytest.fixture
async def world(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    admin = config.load(str(control_plane.kubeconfig), env={})
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(admin, user_agent="test"))
        world = World(control_plane, client, tmp_path)
        await client.create(ACCOUNTS, {"metadata": {"name": world.scraper}}, "default")
        stack.push_async_callback(client.delete, ACCOUNTS, world.scraper, "default")
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        await client.create(ROLES, {"metadata": {"name": world.scraper}, "rules": rules})
        stack.push_async_callback(client.delete, ROLES, world.scraper)
        # What the documentation of delegated authentication tells to give, and nothing else.
        delegator = await world.bind("system:auth-delegator", kind="User", name=world.reviewer)
        stack.push_async_callback(client.delete, BINDINGS, delegator)
        body = {
            "metadata": {"name": world.reviewer},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": f"{NAME}-reader"},
            "subjects": [{"kind": "User", "name": world.reviewer}],
        }
        await client.create(READERS, body, NAMESPACE)
        stack.push_async_callback(client.delete, READERS, world.reviewer, NAMESPACE)
        yield world


async def ready(world: World, stack: AsyncExitStack, options: Options = QUICK) -> Door:
    """A door, once RBAC has taken notice of the reviewer's rights."""

    async def attempt() -> Door | None:
        try:
            return await stack.enter_async_context(world.door(options))
        except AuthoritiesError:
            return None

    return await until("the reviewer may read the ConfigMap", attempt)


async def test_a_token_is_let_in_as_long_as_its_owner_has_the_right(world: World) -> None:
    async with AsyncExitStack() as stack:
        door = await ready(world, stack)
        token = await world.token()
        forbidden = (
            f'forbidden: User "system:serviceaccount:default:{world.scraper}" '
            'cannot get path "/metrics"'
        )
        assert (await door.turns(403, "/metrics", token)).startswith(forbidden)
        binding = await world.may_scrape()
        assert "workqueue_depth" in await door.turns(200, "/metrics", token)
        assert (await door.get("/configz", token=token))[0] == 403
        await world.client.delete(BINDINGS, binding)
        await door.turns(403, "/metrics", token)
        assert (await door.get("/healthz", token=token))[0] == 200


async def test_who_shows_nothing_or_nonsense_sees_health_alone(world: World) -> None:
    async with AsyncExitStack() as stack:
        door = await ready(world, stack)

        async def denied() -> bool:
            # 500 until RBAC has taken notice that the reviewer may ask.
            return (await door.get("/metrics"))[0] == 403

        await until("anonymous is refused", denied)
        assert (await door.get("/healthz"))[0] == 200
        assert (await door.get("/nonsense"))[0] == 403
        message = (await door.get("/metrics"))[1]
        assert message.startswith('forbidden: User "system:anonymous" cannot get path "/metrics"')
        good = await world.token()
        for token in ("nonsense", good[:-4] + "AAAA", good.rpartition(".")[0] + "."):
            assert await door.get("/metrics", token=token) == (401, "Unauthorized")


async def test_certificates_of_the_cluster_are_known(world: World) -> None:
    async with AsyncExitStack() as stack:
        door = await ready(world, stack)
        await door.turns(403, "/metrics", "")
        assert (await door.get("/metrics", client(world.plane, "root", "system:masters")))[0] == 200
        status, message = await door.get("/metrics", client(world.plane, "ann"))
        assert status == 403
        assert message.startswith('forbidden: User "ann" cannot get path "/metrics"')


async def test_many_requests_cost_one_review_of_each_kind(world: World) -> None:
    async with AsyncExitStack() as stack:
        binding = await world.may_scrape()
        stack.push_async_callback(world.client.delete, BINDINGS, binding)
        token = await world.token()
        # Until the rights are in force: the reviewer's are older than the scraper's.
        async with world.door(QUICK, "probe", "system:masters") as probe:
            await probe.turns(200, "/metrics", token)
        door = await ready(world, stack, SLOW)
        answers = await asyncio.gather(*(door.get("/metrics", token=token) for _ in range(10)))
        assert [status for status, _ in answers] == [200] * 10

        async def written() -> int:
            return world.asked("subjectaccessreviews")

        assert await until("the reviews are in the audit log", written) == 1
        assert world.asked("tokenreviews") == 1


async def test_a_front_proxy_is_trusted_as_soon_as_the_cluster_trusts_it(world: World) -> None:
    proxies = Authority()
    shown = proxies.client("front", [])
    said = {"X-Remote-User": "ann", "X-Remote-Group": "system:masters"}
    async with AsyncExitStack() as stack:
        door = await ready(world, stack)

        async def believed() -> bool:
            try:
                return (await door.get("/metrics", shown, **said))[0] == 200
            except aiohttp.ClientError:  # the handshake fails while the authority is unknown
                return False

        assert not await believed()
        keys = ("client-ca-file", "allowed-names", "username-headers", "group-headers")
        stack.push_async_callback(world.publish, **dict.fromkeys(keys))
        values = (proxies.certificate.decode(), '["front"]', '["X-Remote-User"]')
        await world.publish(**dict(zip(keys, (*values, '["X-Remote-Group"]'), strict=True)))
        await until("the front proxy is believed", believed)


async def test_without_the_right_to_read_the_authorities_it_does_not_start(world: World) -> None:
    with pytest.raises(AuthoritiesError, match=f"bind the role {NAME}-reader"):
        async with world.door(user="nobody"):
            pass
    tolerant = msgspec.structs.replace(QUICK, authentication_tolerate_lookup_failure=True)
    async with world.door(tolerant, user="nobody") as door:
        assert (await door.get("/healthz"))[0] == 200
        # It may not ask about rights either: whoever asks is refused.
        assert (await door.get("/metrics"))[0] == 500


async def test_a_manager_shows_its_metrics_to_who_has_the_right(site: Site, world: World) -> None:
    flags = (
        "--authentication-token-webhook-cache-ttl=100ms",
        "--authorization-webhook-cache-unauthorized-ttl=100ms",
        "--authorization-webhook-cache-authorized-ttl=100ms",
    )
    token = await world.token()
    with held_port() as port:
        async with site.lone_manager(*secure(port), *flags) as manager:
            door = Door(port, world.directory)

            async def refused() -> bool:
                assert manager.is_running, manager.output()
                try:
                    return (await door.get("/metrics", token=token))[0] == 403
                except aiohttp.ClientConnectionError:  # it does not listen yet
                    return False

            await until("the scraper is refused", refused)
            binding = await world.may_scrape()
            assert "running_managed_controllers" in await door.turns(200, "/metrics", token)
            assert (await door.get("/metrics", token="wrong"))[0] == 401
            await world.client.delete(BINDINGS, binding)
            await door.turns(403, "/metrics", token)
    assert token not in manager.output()


def client(plane: ControlPlane, user: str, *groups: str) -> tuple[bytes, bytes]:
    """A certificate and key of the cluster's own authority."""
    held = config.load(str(plane.kubeconfig_for(user, groups)), env={}).in_memory()
    assert isinstance(held.client_certificate, bytes)
    assert isinstance(held.client_key, bytes)
    return held.client_certificate, held.client_key
