"""The cloud-config: the official file, none at all, ours beside it, mistakes, secrets."""

from datetime import timedelta
from pathlib import Path

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.providers.mesos import MesosCloud
from proreus.providers.mesos.config import AddressSource, MesosConfig
from proreus.providers.mesos.masters import (
    Direct,
    Place,
    Quorum,
    address_in,
    leading,
    parsed,
    redirected,
)

from .site import cloud, started

OFFICIAL = """
[mesos-cloud]
\tmesos-master        = leader.mesos:5050
\thttp-client-timeout = 500ms
\tstate-cache-ttl     = 1h
"""


def config(text: str) -> MesosConfig:
    return read(text, MesosConfig, source="mesos.conf")


def test_the_official_file_is_read() -> None:
    found = config(OFFICIAL).mesos_cloud
    assert found.mesos_master == "leader.mesos:5050"
    assert found.http_client_timeout == timedelta(milliseconds=500)
    assert found.state_cache_ttl == timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "[mesos-cloud]\n"])
def test_what_is_left_out_is_as_officially(text: str) -> None:
    found = config(text).mesos_cloud
    assert found.mesos_master == "localhost:5050"
    assert found.http_client_timeout == timedelta(seconds=10)
    assert found.state_cache_ttl == timedelta(seconds=5)


def test_no_file_is_needed() -> None:
    assert MesosCloud(None).watched_files == ()


def test_our_sections_are_read() -> None:
    text = """
[Client]
tls = true
ca-file = /ca.pem
cert-file = /c.pem
key-file = /k.pem
principal = proreus
secret-file = /s
[Nodes]
type-attribute = machine
label-attribute = rack
label-attribute = os
addresses = dns
"""
    found = config(text)
    assert found.client.files == ("/ca.pem", "/c.pem", "/k.pem", "/s")
    assert found.nodes.label_attribute == ("rack", "os")
    assert found.nodes.addresses is AddressSource.DNS
    assert cloud(text).watched_files == found.client.files


def test_all_mistakes_are_told_at_once() -> None:
    text = """
[mesos-cloud]
mesos-master = http://a:5050
http-client-timeout = 0s
state-cache-ttl = -1s
unknown = 1
[Client]
ca-file = /ca.pem
key-file = /k.pem
principal = a:b
[Nodes]
label-attribute = a/b
registry-max-agent-age = 0s
addresses = guess
"""
    with pytest.raises(ConfigError) as caught:
        config(text)
    told = "\n".join(caught.value.problems)
    for place in (
        "[mesos-cloud] unknown",
        "[Nodes] addresses",
    ):
        assert place.lower() in told.lower()
    text = text.replace("unknown = 1\n", "").replace("addresses = guess\n", "")
    with pytest.raises(ConfigError) as caught:
        config(text)
    told = "\n".join(caught.value.problems)
    for words in (
        "mesos-master: must be host:port", "http-client-timeout: must be", "state-cache-ttl: must",
        "ca-file: needs tls", "key-file: needs cert-file", "secret-file: is required",
        "principal: must not", "label-attribute: 'a/b'", "registry-max-agent-age: must be",
    ):  # fmt: skip
        assert words in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leader.mesos:5050", Direct(("leader.mesos:5050",))),
        ("master@10.0.0.1:5050", Direct(("10.0.0.1:5050",))),
        ("master(1)@10.0.0.1:5050\n", Direct(("10.0.0.1:5050",))),
        ("[fd00::1]:5050", Direct(("[fd00::1]:5050",))),
        ("a:1, b:2,a:1", Direct(("a:1", "b:2"))),
        ("zk://h1,h2:2182/mesos", Quorum(("h1:2181", "h2:2182"), "/mesos")),
        ("zk://[fd00::1],[fd00::2]:1/a/b/", Quorum(("[fd00::1]:2181", "[fd00::2]:1"), "/a/b")),
        ("zk://u:p@w@h/m", Quorum(("h:2181",), "/m", "u:p@w")),
    ],
)  # fmt: skip
def test_where_the_master_is(text: str, expected: Place) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "host", "host:", ":5050", "host:0", "host:65536", "h_:5050", "a b:1", "host:٣",
        "https://host:5050", "a:1,", "zk://h:2181", "zk://h:2181/", "zk:///mesos", "zk://u@h/m",
        "zk://u:@h/m", "zk://h:x/m", "[::1:5050",
    ],
)  # fmt: skip
def test_no_place_of_a_master(text: str) -> None:
    with pytest.raises(ConfigError):
        parsed(text)


SECRET = "hunter2hunter2"


def test_the_password_of_zookeeper_is_not_shown() -> None:
    found = config(f"[mesos-cloud]\nmesos-master = zk://u:{SECRET}@h/m\n")
    assert SECRET not in repr(found)
    assert "@h/m" in repr(found)
    assert SECRET not in repr(parsed(f"zk://u:{SECRET}@h/m"))
    with pytest.raises(ConfigError) as caught:
        config(f"[mesos-cloud]\nmesos-master = zk://u:{SECRET}@h\n")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("form", ["zk:/u:{},x@h1:2181,h2:2181/mesos", "u:x,{}@h1/m"])
def test_a_mistake_before_a_password_with_a_comma_shows_nothing_of_it(form: str) -> None:
    with pytest.raises(ConfigError, match="zk://user:password@host:port/path") as refused:
        config(f"[mesos-cloud]\nmesos-master = {form.format(SECRET)}\n")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("text", [f"u:{SECRET}/x@h/m", f"u:12/{SECRET}@h:1/m", f"{SECRET}/:x@h/m"])
def test_a_password_with_a_slash_is_refused_and_not_shown(text: str) -> None:
    """Where masters end the user and the password, too."""
    with pytest.raises(ConfigError) as refused:
        config(f"[mesos-cloud]\nmesos-master = zk://{text}\n")
    assert "must not contain /" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        ([], None),
        (["log_replicas"], None),
        (["json.info_0000000007", "json.info_0000000003", "info_0000000001"], "json.info_0000000003"),
        (["json.info_9", "json.info_10", "json.info_x"], "json.info_9"),
    ],
)  # fmt: skip
def test_the_leader_has_the_lowest_number(children: list[str], expected: str | None) -> None:
    assert leading(children) == expected


def test_masters_that_write_no_json_are_too_old() -> None:
    with pytest.raises(CloudError, match=r"1\.0 is needed"):
        leading(["info_0000000001"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"id":"m","address":{"hostname":"a","ip":"10.0.0.1","port":5051},"port":1}', "a:5051"),
        (b'{"id":"m","address":{"ip":"10.0.0.1","port":5051},"hostname":"a"}', "10.0.0.1:5051"),
        (b'{"id":"m","address":{"ip":"fd00::1","port":5051}}', "[fd00::1]:5051"),
        (b'{"id":"m","hostname":"a","ip":16777343,"port":5050}', "a:5050"),
    ],
)
def test_the_address_of_the_leader(content: bytes, expected: str) -> None:
    assert address_in(content) == expected


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"id":"m"}', b'{"id":"m","hostname":"a b","port":1}']
)
def test_an_unreadable_leader_is_an_error(content: bytes) -> None:
    with pytest.raises(CloudError):
        address_in(content)


@pytest.mark.parametrize(
    "location",
    ["//h:5050/api/v1", "http://h:5050/api/v1", "//h:5050/api/v1/"],
)
def test_a_redirect_to_another_master_is_followed(location: str) -> None:
    assert redirected(location, scheme="http", path="/api/v1") == "h:5050"


@pytest.mark.parametrize(
    "location",
    [
        "", "/api/v1", "https://h:5050/api/v1", "//h:5050/other", "//u:p@h:5050/api/v1", "//h/api/v1",
        "//h:5050/api/v1?a=b", "ftp://h:5050/api/v1",
    ],
)  # fmt: skip
def test_a_redirect_to_anything_else_is_not(location: str) -> None:
    with pytest.raises(CloudError, match="not followed"):
        redirected(location, scheme="http", path="/api/v1")


@pytest.mark.parametrize("content", ["nonsense", b"\xff", None])
async def test_a_file_that_names_no_master_is_refused_with_its_name(
    tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "zk"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = f"[mesos-cloud]\nmesos-master = file://{file}\n"
    assert cloud(text).watched_files == (str(file),)
    with pytest.raises(ConfigError, match=str(file)):
        async with started(text):
            pass


def test_a_file_has_a_whole_path() -> None:
    with pytest.raises(ConfigError, match="whole path"):
        config("[mesos-cloud]\nmesos-master = file://etc/mesos/zk\n")


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_an_unusable_secret_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match="secret-file"):
        async with started(f"[Client]\nprincipal = p\nsecret-file = {file}\n"):
            pass
