"""The roles that flags need, and the tokens of controllers' accounts."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from proreus.app import cli
from proreus.app.clients import RENEW_AT, AccountToken
from proreus.app.flags import FlagError
from proreus.app.options import Options
from proreus.app.rights import ACCOUNT, ROLE, Role, merged, own, roles
from proreus.app.roles import objects
from proreus.controllers.table import CONTROLLERS, Rule
from proreus.kube.errors import NotFound, Unreachable
from proreus.kube.execplugin import PluginFailed

APART = Options(use_service_account_credentials=True)


def rights(found: tuple[Role, ...], account: str = ACCOUNT) -> set[tuple[str, str, str, str]]:
    """Namespace, resource, verb and name of everything that an account may do."""
    return {
        (role.namespace, rule.resource, verb, name)
        for role in found
        if role.account == account
        for rule in role.rules
        for verb in rule.verbs
        for name in rule.names or ("",)
    }


def test_together_and_apart_give_the_same_rights_but_those_over_accounts() -> None:
    apart = roles(APART)
    accounts = {role.account for role in apart}
    assert accounts == {ACCOUNT, "node-controller", "route-controller", "service-controller"}
    all_of_them = set().union(*(rights(apart, account) for account in accounts))
    over_accounts = {one for one in all_of_them if one[1].startswith("serviceaccounts")}
    assert rights(roles(Options())) == all_of_them - over_accounts
    assert over_accounts == {
        ("kube-system", "serviceaccounts", "create", ""),
        *(("kube-system", "serviceaccounts/token", "create", one) for one in accounts - {ACCOUNT}),
    }


def test_apart_each_account_writes_what_its_controllers_write_and_the_main_one_nothing() -> None:
    found = roles(APART)
    assert rights(found, "route-controller") == {("", "nodes/status", "patch", "")}
    assert ("", "nodes", "delete", "") in rights(found, "node-controller")
    main = {(resource, verb) for _, resource, verb, _ in rights(found)}
    assert not {("nodes", "patch"), ("nodes", "delete"), ("services/status", "patch")} & main


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (Options(leader_elect=False), {"leases"}),
        (Options(secure_port=0), {"tokenreviews", "subjectaccessreviews", "configmaps"}),
        (Options(authentication_skip_lookup=True), {"configmaps"}),
    ],
)
def test_what_flags_switch_off_needs_no_right(options: Options, gone: set[str]) -> None:
    without = {resource for _, resource, _, _ in rights(roles(options))}
    assert {resource for _, resource, _, _ in rights(roles(Options()))} - without == gone


def test_a_secret_and_leases_are_named_in_their_own_namespaces() -> None:
    found = rights(
        roles(
            Options(cloud_config_secret="clouds/one/key", leader_elect_resource_namespace="leases"),
            leases=("a", "b"),
            needs=frozenset(),
        )
    )
    assert {one for one in found if one[1] == "secrets"} == {
        ("clouds", "secrets", verb, "one") for verb in ("get", "list", "watch")
    }
    assert {one[3] for one in found if one[:3] == ("leases", "leases", "update")} == {"a", "b"}


def test_the_board_of_replicas_is_a_lease_that_only_some_providers_need() -> None:
    def names(needs: frozenset[str]) -> set[str]:
        found = rights(roles(Options(leader_elect_resource_name="own"), needs=needs))
        return {one[3] for one in found if one[1:3] == ("leases", "update")}

    assert names(frozenset()) == {"own"}
    assert names(frozenset({"board"})) == {"own", "own-gateways"}


def test_only_chosen_controllers_and_needed_caches_get_rights() -> None:
    routes = [one for one in CONTROLLERS if one.alias == "route"]
    found = {one[1:3] for one in rights(roles(Options(), chosen=routes, needs=frozenset()))}
    assert ("nodes/status", "patch") in found
    assert not {("nodes", "patch"), ("services/status", "patch")} & found
    assert not any(resource == "endpointslices" for resource, _ in found)


def test_volumes_are_read_and_labelled_under_an_account_of_their_own() -> None:
    chosen = [one for one in CONTROLLERS if one.alias == "pvlabel"]
    found = rights(roles(APART, chosen=chosen), "pvl-controller")
    verbs = ("get", "list", "patch", "watch")
    recognised = ("", "namespaces", "get", "kube-system")
    assert found == {recognised, *(("", "persistentvolumes", verb, "") for verb in verbs)}
    assert "persistentvolumes" not in {one[1] for one in rights(roles(Options()))}


def test_webhooks_that_are_enabled_get_rights_to_read() -> None:
    more = rights(roles(Options(webhooks=("*",)))) - rights(roles(Options()))
    assert more == {("", "storageclasses", "get", "")}


def test_rules_of_one_resource_are_merged_unless_they_name_objects() -> None:
    get, patch = Rule("", "nodes", ("get",)), Rule("", "nodes", ("patch", "get"))
    named = Rule("", "nodes", ("delete",), ("a",))
    assert merged((patch, named, get)) == (Rule("", "nodes", ("patch", "get")), named)
    assert own((get, patch, Rule("", "events", ("create",)))) == (Rule("", "nodes", ("patch",)),)


def test_every_binding_is_of_a_role_that_is_printed_to_an_account_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["roles", "--use-service-account-credentials", "--v=2"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    named = {(one["kind"], one["metadata"]["name"]) for one in printed}
    bindings = [one for one in printed if "roleRef" in one]
    assert len(bindings) == sum("rules" in one for one in printed)
    for one in bindings:
        assert (one["roleRef"]["kind"], one["roleRef"]["name"]) in named
        assert one["roleRef"]["name"].startswith(ROLE)
        for subject in one["subjects"]:
            assert (subject["kind"], subject["name"]) in named


def test_wrong_flags_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["roles", "--controllers=nodes"]) == 2
    assert "--controllers: unknown controller 'nodes'" in capsys.readouterr().err
    assert cli.main(["roles", "--cloud-provider=none-such"]) == 2
    assert "--cloud-provider: 'none-such' is unknown" in capsys.readouterr().err
    with pytest.raises(FlagError, match="namespace/name/key"):
        objects(Options(cloud_config_secret="name"))


class Accounts:
    """Stands for the API server: gives a token after the account was made, or what is set."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.life = 3600.0
        self.error: Exception | None = None
        self.tokens = 0

    async def create(self, resource: Any, body: Any, namespace: str) -> None:
        self.made.append(f"{namespace}/{body['metadata']['name']}")

    async def send(self, request: Any, type_: Any) -> Any:
        if self.error:
            raise self.error
        if not self.made:
            raise NotFound(404, "serviceaccounts not found")
        self.tokens += 1
        ends = datetime.now(UTC) + timedelta(seconds=self.life)
        status = {"token": f"token-{self.tokens}", "expirationTimestamp": ends.isoformat()}
        return msgspec.convert({"status": status}, type_)


def test_a_token_is_renewed_early_and_goes_on_while_renewal_fails() -> None:
    server = Accounts()
    token: Any = AccountToken(server, "node-controller")  # type: ignore[arg-type]

    async def story() -> None:
        first = await token.run()
        assert server.made == ["kube-system/node-controller"]
        left = first.expires - datetime.now(UTC).timestamp()
        assert RENEW_AT * 3600 - 60 < left <= RENEW_AT * 3600
        server.error = Unreachable("down", sent=False)
        waits = []
        for _ in range(3):
            held = await token.run()
            assert held.token == first.token == "token-1"
            waits.append(held.expires - datetime.now(UTC).timestamp())
        assert waits == sorted(waits)
        server.error = None
        assert (await token.run()).token == "token-2"

    asyncio.run(story())


def test_a_token_that_has_run_out_is_not_sent_any_more() -> None:
    server = Accounts()
    server.life = -1.0
    token: Any = AccountToken(server, "node-controller")  # type: ignore[arg-type]

    async def story() -> None:
        await token.run()
        server.error = Unreachable("down", sent=False)
        with pytest.raises(PluginFailed, match="kube-system/node-controller: down"):
            await token.run()

    asyncio.run(story())


def test_serving_certificates_are_approved_for_one_signer_under_an_account_of_their_own() -> None:
    chosen = [one for one in CONTROLLERS if one.alias == "kubelet-serving"]
    found = rights(roles(APART, chosen=chosen), "kubelet-serving-approving-controller")
    assert {one for one in found if one[2] not in {"get", "list", "watch"}} == {
        ("", "certificatesigningrequests/approval", "patch", ""),
        ("", "signers", "approve", "kubernetes.io/kubelet-serving"),
    }
    assert not {one for one in rights(roles(Options())) if one[1].startswith("certificate")}
