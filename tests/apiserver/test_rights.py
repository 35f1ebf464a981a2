"""What managers ask of the API server, and as whom, is what the generated roles say."""

import json
from collections import defaultdict
from typing import Final

import pytest

from proreus.app.options import Options
from proreus.app.rights import ACCOUNT, Role, roles
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.errors import NotFound, StatusError
from proreus.kube.requests import NODES, SECRETS, SERVICE_ACCOUNTS, SERVICES
from proreus.testing.waiting import until

from .life import begun
from .rights import ACCOUNTS, MANAGERS
from .site import Site, names

CLASSIC: Final = (
    "--leader-elect=true",
    "--use-service-account-credentials",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    "--cluster-cidr=172.17.0.0/16",
    "-v=2",
)
"""The command line of Kubernetes' own documentation."""
QUICK: Final = ("--node-monitor-period=500ms", "--node-deletion-confirmations=1")
CONTROLLERS: Final = ("node-controller", "route-controller", "service-controller")

Right = tuple[str, str, str]
"""Account, resource with its subresource, verb."""

UNUSED: Final[frozenset[Right]] = frozenset(
    {
        # Only when a cache does not show a write in 10 s.
        (ACCOUNT, "nodes", "get"),
        (ACCOUNT, "services", "get"),
        # Only when an event happens again.
        (ACCOUNT, "events", "patch"),
        # Only while another replica holds the lease.
        (ACCOUNT, "leases", "list"),
        (ACCOUNT, "leases", "watch"),
        # Only for changes of a Service that have no place in its status.
        ("service-controller", "services", "patch"),
    }
)
"""Rights that this story does not need, each with its reason."""


def declared(found: tuple[Role, ...]) -> set[Right]:
    return {
        (role.account, rule.resource, verb)
        for role in found
        for rule in role.rules
        for verb in rule.verbs
    }


def used(site: Site) -> dict[str, set[Right]]:
    """What the manager and its accounts asked for, by the user agent that asked."""
    found = defaultdict[str, set[Right]](set)
    with site.plane.audit_log.open("rb") as log:
        log.seek(site._audit_start)
        for line in log:
            asked = json.loads(line) if line.endswith(b"\n") else {}
            user = asked.get("user", {}).get("username", "")
            if user != "manager" and not user.startswith(ACCOUNTS):
                continue
            ref = asked["objectRef"]
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            account = ACCOUNT if user == "manager" else user.removeprefix(ACCOUNTS)
            found[asked["userAgent"]].add((account, resource, asked["verb"]))
    return found


async def live(site: Site) -> None:
    """Give every controller something to do, and wait until it is done."""
    leaver = await begun(site)
    await site.cloud.admin.delete(leaver.id)
    await site.gone("b")

    async def is_gone() -> bool:
        return all(
            one.metadata.name != "web"
            for one in (await site.client.list(SERVICES, "default")).items
        )

    await until("the Service is gone", is_gone)
    await site.event("DeletingNode", "b")


async def test_the_classic_command_line_does_all_under_accounts_and_needs_every_right(
    site: Site,
) -> None:
    for account in (await site.client.list(SERVICE_ACCOUNTS, "kube-system")).items:
        if account["metadata"]["name"] in CONTROLLERS:
            await site.client.delete(SERVICE_ACCOUNTS, account["metadata"]["name"], "kube-system")
    async with site.manager(*CLASSIC, *QUICK) as manager:
        await live(site)
        assert await manager.stop() == 0
    asked = used(site)
    everything = set[Right]().union(*asked.values())
    options = Options(use_service_account_credentials=True, leader_elect=True, secure_port=0)
    rights = declared(roles(options, needs=frozenset()))
    assert everything - rights == set()
    assert rights - everything - UNUSED == set()
    for agent, found in asked.items():
        own = [one for one in CONTROLLERS if agent.endswith(f"/{one}")] or [ACCOUNT]
        assert {account for account, _, _ in found} == set(own), agent


async def test_what_no_role_allows_is_forbidden_and_seen(site: Site) -> None:
    site.may_be_refused = True
    user = site.plane.kubeconfig_for("curious", [MANAGERS])
    async with Client(config.load(str(user), env={})) as client:
        await client.list(NODES)
        assert site.refused() == []
        with pytest.raises(StatusError) as caught:
            await client.list(SECRETS)
        assert caught.value.code == 403

    async def is_seen() -> bool:
        return any("curious may not list /api/v1/secrets" in one for one in site.refused())

    await until("the audit log tells", is_seen)


async def test_a_deleted_account_is_made_anew_and_its_controllers_go_on(site: Site) -> None:
    async with site.lone_manager("--use-service-account-credentials", *QUICK):
        await site.join("first")
        await site.initialised("first")
        before = await account_of_nodes(site)
        await site.client.delete(SERVICE_ACCOUNTS, "node-controller", "kube-system")
        joined = iter(names("later", 1000))

        async def is_another() -> bool:
            """The API server trusts a token for some seconds more: give it cause to look again."""
            name = next(joined)
            await site.join(name)
            await site.initialised(name)
            return await account_of_nodes(site) not in {"", before}

        await until("there is another account", is_another)
        await site.join("last")
        await site.initialised("last")


async def account_of_nodes(site: Site) -> str:
    """The uid of the account node-controller, "" if there is none."""
    try:
        found = await site.client.get(SERVICE_ACCOUNTS, "node-controller", "kube-system")
    except NotFound:
        return ""
    uid: str = found["metadata"]["uid"]
    return uid
