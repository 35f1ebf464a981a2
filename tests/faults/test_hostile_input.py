"""Input that is broken or meant to harm: one clear error at most, and no way to what is others'."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proreus.cloudprovider import ClusterIdentity, HostPolicy, InvalidRequest
from proreus.cloudprovider.config import read
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.identity import MARK_SERVICE_UID
from proreus.kube import config as kubeconfig
from proreus.kube.client import Client
from proreus.kube.errors import ConfigError as KubeconfigError
from proreus.kube.errors import KubeError
from proreus.kube.objects import ANNOTATION_SOURCE_RANGES, Node, Service, condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.kube.watch import Applied, Failed, Heard, WatchState, decode_line, step
from proreus.providers.simulated.config import SimulatedConfig
from proreus.testing.controlplane import ControlPlane
from proreus.testing.objects import service_body
from proreus.testing.waiting import until

from ..apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path

MARK: Final = "Pl4nted"
CLOUD_CONFIGS: Final = {
    "gcfg": (
        f'; a comment\n[Global]\nendpoint = "http://127.0.0.1:1"\nregion = sim-1\n'
        f'token = "{MARK}"\nbatch-size = 5\n'
    ),
    "yaml": (
        f"global:\n  endpoint: http://127.0.0.1:1\n  region: sim-1\n  batchSize: 5\n"
        f"  token: '{MARK}'\n"
    ),
    "json": (
        '{"global": {"endpoint": "http://127.0.0.1:1", "region": "sim-1",\n'
        f' "batchSize": 5, "token": "{MARK}"}}}}\n'
    ),
    "toml": (
        f'[global]\nendpoint = "http://127.0.0.1:1"\nregion = "sim-1"\n'
        f'token = "{MARK}"\nbatch-size = 5\n'
    ),
}
KUBECONFIG: Final = yaml.safe_dump(
    {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": MARK}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
)
SERVICE: Final[dict[str, Any]] = {
    "metadata": {
        "name": "web",
        "namespace": "default",
        "uid": "1",
        "resourceVersion": "7",
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "finalizers": ["a/b"],
        "annotations": {"a": "b"},
    },
    "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30000, "targetPort": "x"}]},
    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
}
NODE: Final[dict[str, Any]] = {
    "metadata": {"name": "one", "uid": "1", "resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {"providerID": "x://y", "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
}
# What breaks readers: ends of lines, quotes, brackets, nothing, other alphabets, half characters.
BITS: Final = st.sampled_from(
    [
        "",
        "\n",
        "\r\n",
        "\0",
        '"',
        "'",
        "[",
        "]",
        "{",
        "}",
        "=",
        ":",
        " ",
        "\t",
        "#",
        "\\",
        "&a",
        "*a",
        "!!python/object:os.system",
        "<<",
        "- ",
        "\x1b[31m",
        "\u2028",
        "\ufeff",
        "\ud800",
        "é",
        "9" * 400,
    ]
)
CALM: Final = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def edits() -> st.SearchStrategy[list[tuple[float, int, str]]]:
    """Where (as a share of the length), how many characters go, and what comes instead."""
    return st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), BITS), min_size=1, max_size=4)


def edited(text: str, changes: list[tuple[float, int, str]]) -> str:
    for share, length, new in changes:
        at = round(share * len(text))
        text = text[:at] + new + text[at + length :]
    return text


def check_problems(problems: tuple[str, ...]) -> None:
    """There is something to read, on one line each, and without the secret."""
    assert problems
    for problem in problems:
        assert problem.strip()
        assert MARK not in problem
        assert problem.isprintable()


# Reading configs


@pytest.mark.parametrize("dialect", CLOUD_CONFIGS)
@CALM
@given(changes=edits())
def test_a_broken_cloud_config_is_refused_in_plain_words_without_its_secrets(
    dialect: str, changes: list[tuple[float, int, str]]
) -> None:
    # The secret's own line stays: a half of it could be anything.
    text = CLOUD_CONFIGS[dialect]
    start, end = text.rindex("\n", 0, text.index(MARK)), text.index("\n", text.index(MARK))
    try:
        read(
            edited(text[:start], changes) + text[start:end] + text[end:],
            SimulatedConfig,
            source="file",
            format_=dialect,
        )
    except ConfigError as error:
        check_problems(error.problems)


@pytest.mark.parametrize("dialect", ["gcfg", "toml"])
@pytest.mark.parametrize("rest", [f"{MARK}", f"{MARK}==", f"{MARK} = ", f"a\n{MARK}\n+/{MARK}"])
def test_no_line_of_a_secret_that_does_not_fit_its_line_is_taken_for_a_name(
    dialect: str, rest: str
) -> None:
    text = CLOUD_CONFIGS[dialect].replace(MARK, f"first\n{rest}")
    with pytest.raises(ConfigError) as refused:
        read(text, SimulatedConfig, source="file", format_=dialect)
    check_problems(refused.value.problems)


@CALM
@given(changes=edits())
def test_a_broken_kubeconfig_is_refused_in_plain_words_without_its_secrets(
    tmp_path: Path, changes: list[tuple[float, int, str]]
) -> None:
    head, mark, tail = KUBECONFIG.partition(MARK)
    file = tmp_path / "kubeconfig"
    file.write_bytes((edited(head, changes) + mark + tail).encode(errors="surrogatepass"))
    try:
        kubeconfig.load(str(file), env={})
    except KubeconfigError as error:
        check_problems(error.problems)


# Objects


JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["x" * 100_000, "\r\nSet-Cookie: a", "../../admin", "None", "-1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of everything in an object."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


def replaced(value: Any, at: tuple[str | int, ...], new: Any) -> Any:
    if not at:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = replaced(copy[at[0]], at[1:], new)
    return copy


@CALM
@given(data=st.data(), new=JSON)
def test_an_event_of_a_watch_with_anything_in_any_field_is_read_or_restarts_the_watch(
    data: st.DataObject, new: Any
) -> None:
    kind, body = data.draw(st.sampled_from([(Service, SERVICE), (Node, NODE)]))
    whole = {"type": "MODIFIED", "object": body}
    line = msgspec.json.encode(replaced(whole, data.draw(st.sampled_from(places(whole))), new))
    event_type: Any = Heard
    decoder: msgspec.json.Decoder[Heard[Any]] = msgspec.json.Decoder(event_type[kind])
    signal = decode_line(line, decoder, NODES if kind is Node else SERVICES)
    state, event = step(WatchState("7", heard=True), signal)
    if isinstance(signal, Failed):
        assert (state.version, event) == ("", None)
        assert len(str(signal.error)) < 2000
        assert str(signal.error).isprintable()
    elif isinstance(event, Applied):
        assert isinstance(event.object, kind)


@CALM
@given(
    line=st.binary(max_size=200), at=st.integers(0, 400), flips=st.binary(min_size=1, max_size=8)
)
@example(line=b"", at=20, flips=b"\xff")
def test_bytes_of_a_watch_that_are_no_event_restart_it(line: bytes, at: int, flips: bytes) -> None:
    whole = msgspec.json.encode({"type": "ADDED", "object": SERVICE})
    decoder = msgspec.json.Decoder(Heard[Service])
    for broken in (line, whole[:at], whole[:at] + flips + whole[at + len(flips) :]):
        signal = decode_line(broken, decoder, SERVICES)
        assert isinstance(signal, Heard) or signal.restart


@pytest.mark.parametrize("status", [200, 409, 500])
async def test_an_answer_that_is_no_text_is_an_error_of_the_api_server(status: int) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(
            status=status, body=b'{"metadata": {"name": "\xff"}, "message": "\xff"}'
        )

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Client(kubeconfig.ClientConfig(server=server)) as client:
            with pytest.raises(KubeError):
                await client.get(SERVICES, "web", "default")
    finally:
        await runner.cleanup()


@CALM
@given(
    annotation=st.text(max_size=40) | BITS,
    address=st.text(max_size=40) | BITS,
    ranges=st.lists(st.text(max_size=20) | BITS | st.just("10.0.0.0/8"), max_size=3),
    families=st.lists(st.text(max_size=6) | st.sampled_from(["IPv4", "IPv6"]), max_size=3),
)
def test_a_service_with_any_text_in_its_fields_is_desired_cleanly_or_refused_clearly(
    annotation: str, address: str, ranges: list[str], families: list[str]
) -> None:
    meta = {**SERVICE["metadata"], "annotations": {ANNOTATION_SOURCE_RANGES: annotation}}
    spec = {
        **SERVICE["spec"],
        "loadBalancerIP": address,
        "loadBalancerSourceRanges": ranges,
        "ipFamilies": families,
    }
    try:
        service = msgspec.convert({**SERVICE, "metadata": meta, "spec": spec}, Service)
        desired = desired_load_balancer(service, (), HostPolicy(), ClusterIdentity("c", "u"))
    except InvalidRequest:
        return
    assert desired.ref.name.isalnum()
    for texts in desired.source_ranges.values():
        assert [str(ip_network(text)) for text in texts] == list(texts)


# One tenant against another


Attack = Callable[[str, str], dict[str, Any]]
"""Makes a Service of the victim's address and uid."""
LINES: Final = "10.0.0.0/8\r\nX-Injected: yes\r\n\r\nDELETE /admin/parts"
ATTACKS: Final[dict[str, Attack]] = {
    "address-of-another": lambda address, uid: {"spec": {"loadBalancerIP": address}},
    "address-in-status": lambda address, uid: {
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}}
    },
    "marks": lambda address, uid: {
        "metadata": {
            "labels": {MARK_SERVICE_UID: uid},
            "annotations": {MARK_SERVICE_UID: uid, "kubernetes.io/service-name": "default/victim"},
        }
    },
    "lines-in-annotation": lambda address, uid: {
        "metadata": {"annotations": {"service.kubernetes.io/anything": LINES}}
    },
    "path-in-address": lambda address, uid: {"spec": {"loadBalancerIP": f"../{uid}"}},
    "lines-in-address": lambda address, uid: {"spec": {"loadBalancerIP": LINES}},
    "host-in-address": lambda address, uid: {"spec": {"loadBalancerIP": "169.254.169.254"}},
}
SERVED: Final = frozenset({"address-in-status", "marks", "lines-in-annotation"})
"""Those that get a load balancer of their own; the others are refused."""


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as made:
        yield made


async def test_no_service_reaches_the_load_balancer_of_another(site: Site) -> None:
    async with site.lone_manager("-v=10") as manager:
        await site.join("one")
        await site.initialised("one")
        await site.create_service("victim")
        victim = await until("the victim is served", lambda: served(site, "victim"))
        address, uid = victim.status.load_balancer.ingress[0].ip, victim.metadata.uid
        before = await parts_of(site, uid)

        for name, attack in ATTACKS.items():
            await create(site, name, attack(address, uid))
        for name in ATTACKS:
            found = await until(f"{name} is answered", partial(answered, site, name))
            state = condition(found.status.conditions, "LoadBalancerReady")
            assert (name in SERVED) == (state is not None and state.status == "True"), name
            assert all(one.ip != address for one in found.status.load_balancer.ingress), name
            assert state is not None
            assert state.message.isprintable(), name
        for event in await site.events():
            assert event.message.isprintable()
        for name in ATTACKS:
            await site.client.delete(SERVICES, name, "default")
            await until(f"{name} is gone", partial(gone, site, name))

        assert await parts_of(site, uid) == before
        assert {
            one.get("tags", {}).get(MARK_SERVICE_UID) for one in await site.cloud.admin.parts()
        } <= {uid, None}
        assert [one.metadata.name for one in (await site.client.list(NODES)).items] == ["one"]
    lines = manager.output().splitlines()
    assert [line for line in lines if line.startswith(("X-Injected", "DELETE"))] == []


async def create(site: Site, name: str, attack: dict[str, Any]) -> None:
    """A Service of type LoadBalancer that somebody without rights on others' could make."""
    meta = {**attack.get("metadata", {}), "name": name}
    body = service_body(metadata=meta, **attack.get("spec", {}))
    await site.client.create(SERVICES, body, "default")
    if "status" in attack:
        patch = Patch(PatchType.MERGE, {"status": attack["status"]})
        await site.client.patch(SERVICES, name, patch, "default", subresource="status")


async def served(site: Site, name: str) -> Service | None:
    found = await site.service(name)
    return found if found.status.load_balancer.ingress else None


async def answered(site: Site, name: str) -> Service | None:
    """The Service once it is known what becomes of it."""
    found = await site.service(name)
    state = condition(found.status.conditions, "LoadBalancerReady")
    return found if state is not None and state.reason != "Provisioning" else None


async def gone(site: Site, name: str) -> bool:
    present = (await site.client.list(SERVICES, "default")).items
    return name not in {one.metadata.name for one in present}


async def parts_of(site: Site, uid: str) -> list[dict[str, Any]]:
    """The parts of a Service, but for the health that traffic gives them."""
    parts = await site.cloud.admin.parts()
    return [
        {key: value for key, value in one.items() if key not in {"state", "error"}}
        for one in parts
        if one["tags"].get(MARK_SERVICE_UID) == uid
    ]
