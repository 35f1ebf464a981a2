"""Decoding cloud-configs: the official files as they are, and every error at once."""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.config import ConfigSection, read
from proreus.cloudprovider.config_tree import Format, parse
from proreus.cloudprovider.config_values import camel_case
from proreus.cloudprovider.errors import ConfigError


class AWSGlobal(ConfigSection, frozen=True):
    """A part of the real section."""

    zone: str = ""
    vpc: str = ""
    subnet_id: str = msgspec.field(name="SubnetID", default="")
    disable_security_group_ingress: bool = False
    node_ip_families: tuple[str, ...] = ()
    probe_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 10256


class ServiceOverride(ConfigSection, frozen=True):
    service: str
    region: str
    url: str
    signing_region: str


class AWS(ConfigSection, frozen=True):
    global_: AWSGlobal = AWSGlobal()
    service_override: dict[str, ServiceOverride] = msgspec.field(default_factory=dict)


AWS_FILE = """\
; the test hook of the official provider
[Global]
Zone = us-east-1a
VPC=vpc-0abc
SubnetID = "subnet-1"
DisableSecurityGroupIngress
NodeIPFamilies = ipv4
NodeIPFamilies = ipv6
probe-port = 0x2810

[ServiceOverride "1"]
Service = ec2
Region = us-east-1
URL = http://127.0.0.1:5000   # moto
SigningRegion = us-east-1
[ServiceOverride "2"]
Service = elasticloadbalancing
Region = us-east-1
URL = http://127.0.0.1:5000
SigningRegion = us-east-1
"""


def test_the_aws_file_is_read() -> None:
    config = read(AWS_FILE, AWS, source="cloud.conf")
    assert config.global_ == AWSGlobal(
        zone="us-east-1a",
        vpc="vpc-0abc",
        subnet_id="subnet-1",
        disable_security_group_ingress=True,
        node_ip_families=("ipv4", "ipv6"),
        probe_port=10256,
    )
    assert [override.service for override in config.service_override.values()] == [
        "ec2",
        "elasticloadbalancing",
    ]
    assert list(config.service_override) == ["1", "2"]


class OSGlobal(ConfigSection, frozen=True):
    ignore_unknown: ClassVar[bool] = True

    auth_url: str
    username: str = ""
    password: str = ""
    tls_insecure: bool | None = None


class OSLoadBalancer(ConfigSection, frozen=True):
    ignore_unknown: ClassVar[bool] = True

    monitor_delay: timedelta = timedelta(seconds=5)
    max_retries: int | None = None


class OSClass(ConfigSection, frozen=True):
    floating_network_id: str = ""


class OpenStack(ConfigSection, frozen=True):
    ignore_unknown: ClassVar[bool] = True

    global_: OSGlobal
    load_balancer: OSLoadBalancer = OSLoadBalancer()
    load_balancer_class: dict[str, OSClass] = msgspec.field(default_factory=dict)
    block_storage: dict[str, Any] = msgspec.field(default_factory=dict)


OPENSTACK_FILE = r"""
[Global]
auth-url = "https://keystone:5000/v3"
username = occm
password = "p;w\"d"
tls-insecure = YES
unheard-of = 1
[LoadBalancer]
monitor-delay = 1m30s
max-retries = 3
[LoadBalancerClass "InternalAccess"]
floating-network-id = net-1
[BlockStorage]
bs-version = v3
trust-device-path
[Novelty]
x = 1
"""


def test_the_openstack_file_is_read_and_what_it_ignores_is_named() -> None:
    warnings: list[str] = []
    config = read(OPENSTACK_FILE, OpenStack, source="cloud.conf", warn=warnings.append)
    assert config.global_.password == 'p;w"d'
    assert config.global_.tls_insecure is True
    assert config.load_balancer == OSLoadBalancer(timedelta(seconds=90), 3)
    assert config.load_balancer_class == {"InternalAccess": OSClass("net-1")}
    assert config.block_storage == {"bs-version": "v3", "trust-device-path": None}
    assert warnings == [
        "cloud.conf:16: [Novelty]: is unknown and ignored",
        "cloud.conf:7: [Global] unheard-of: is unknown and ignored",
    ]


def problems_of(text: str, type_: type[msgspec.Struct], source: str = "c.conf") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, type_, source=source)
    return list(caught.value.problems)


def test_every_error_is_reported_at_once_with_line_section_and_key() -> None:
    text = """\
[Global]
Zome = a
probe-port = 70000
DisableSecurityGroupIngress = perhaps
Zone
[ServiceOverride "1"]
Service = "ec2
Region = x
[Global "sub"]
Zone = b
[Unheard]
"""
    found = problems_of(text, AWS)
    assert [problem.split(":", 2)[1] for problem in found] == [
        "2", "3", "4", "5", "6", "6", "7", "9", "11",
    ]  # fmt: skip
    assert found[0] == "c.conf:2: [Global] Zome: is unknown; did you mean zone?"
    assert found[1] == "c.conf:3: [Global] probe-port: Expected `int` <= 65535"
    assert found[2] == "c.conf:4: [Global] DisableSecurityGroupIngress: must be true or false"
    assert found[3] == "c.conf:5: [Global] Zone: needs a value"
    assert found[4] == 'c.conf:6: [ServiceOverride "1"] url: is required'
    assert found[6].startswith('c.conf:7: [ServiceOverride "1"] Service: the quotation mark')
    assert found[7] == 'c.conf:9: [Global "sub"]: takes no subsection'
    assert found[8] == "c.conf:11: [Unheard]: is unknown; known are global, service_override"


def test_a_required_section_that_is_missing_is_named() -> None:
    assert problems_of("", OpenStack) == ["c.conf:1: global.auth_url: is required"]


class Mode(StrEnum):
    SHARED = "Shared"
    OWN = "Own"


class Types(ConfigSection, frozen=True):
    flag: bool = False
    whole: int = 0
    share: float = 0.0
    wait: timedelta = timedelta()
    mode: Mode = Mode.SHARED
    words: list[str] = msgspec.field(default_factory=list)
    numbers: tuple[int, ...] = ()


class Root(ConfigSection, frozen=True):
    s: Types = Types()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flag = on", Types(flag=True)),
        ("flag = TRUE", Types(flag=True)),
        ("flag = 0", Types(flag=False)),
        ("whole = -12", Types(whole=-12)),
        ("whole = 010", Types(whole=10)),
        ("whole = 0xff", Types(whole=255)),
        ("share = 0.25", Types(share=0.25)),
        ("wait = 1h2m3s", Types(wait=timedelta(seconds=3723))),
        ("wait = 1.5s", Types(wait=timedelta(seconds=1.5))),
        ("wait = -250ms", Types(wait=timedelta(seconds=-0.25))),
        ("wait = 0", Types()),
        ("mode = Own", Types(mode=Mode.OWN)),
        ("words = a\nwords = b, c", Types(words=["a", "b, c"])),
        ("words = a\nwords\nwords = b", Types(words=["b"])),
        ("numbers = 1\nnumbers = 2", Types(numbers=(1, 2))),
        ("whole = 1\nwhole = 2", Types(whole=2)),
        ("whole = 1\n[S]\nflag", Types(whole=1, flag=True)),
        ("W-H_o-LE = 7", Types(whole=7)),
    ],
)
def test_values_have_the_types_of_their_fields(line: str, expected: Types) -> None:
    assert read(f"[S]\n{line}", Root, source="c.conf").s == expected


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("flag = maybe", "true or false"),
        ("flag =", "true or false"),
        ("whole = 1_000", "whole number"),
        ("whole = 1.5", "whole number"),
        ("whole", "needs a value"),
        ("share = much", "float"),
        ("wait = 5", "with its unit"),
        ("wait = s", "with its unit"),
        ("mode = Both", "must be one of Shared, Own"),
        ("wait = 99999999999999999h", "too long"),
        ("whole = x\nwhole = 1", "whole number"),
        ("numbers = 1\nnumbers = x", "whole number"),
    ],
)
def test_values_of_other_types_are_refused(line: str, part: str) -> None:
    (problem,) = problems_of(f"[S]\n{line}", Root)
    assert part in problem
    assert "[S]" in problem


class Credentials(ConfigSection, frozen=True):
    password: Mode = Mode.OWN
    api_key: int = 0
    user: str = ""
    client_secret: str = ""


class Secretive(ConfigSection, frozen=True):
    login: Credentials = Credentials()


@pytest.mark.parametrize(
    "text",
    [
        "[login]\npassword = hunter2",
        "[login]\napi-key = hunter2",
        '[login]\nclient-secret = "hunter2',
        "[login]\nclient-secret = hunter2\\n",
        '[login]\nclient-secret = "hunter2\\x"',
        "[login]\nuser hunter2",
        "login: {password: hunter2}",
        "login: {api_key: [hunter2]}",
        'login: {"client_secret": "hunter2',
        '{"login": {"password": "hunter2"}}',
        '{"login": {"password": "hunter2",}}',
        "login:\n  client_secret: hunter2: x",
        "login: hunter2",
        "hunter2",
        "[login]\n" + "hunter2" * 10,
    ],
)
def test_no_error_shows_a_secret(text: str) -> None:
    found = problems_of(text, Secretive)
    assert found
    assert "hunter2" not in " ".join(found)


def test_a_representation_hides_secrets() -> None:
    text = "[login]\nclient-secret = hunter2\nuser = me"
    config = read(text, Secretive, source="c.conf")
    assert config.login.client_secret == "hunter2"
    assert "hunter2" not in repr(config)
    assert "user='me'" in repr(config)


class Center(ConfigSection, frozen=True):
    server: str
    port: int = 443
    insecure_flag: bool = False
    datacenters: tuple[str, ...] = ()


class VSphere(ConfigSection, frozen=True):
    vcenter: dict[str, Center] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    nodes: Types | None = None
    overrides: list[Center] = msgspec.field(default_factory=list)
    legacy: Any = None


VSPHERE_FILE = """\
# comment
vcenter:
  tenant-1:
    server: 10.0.0.1
    insecureFlag: true
    datacenters: [dc1, dc2]
  tenant-2:
    server: 10.0.0.2
    port: 8443
    datacenters: dc3
labels: {zone: on, region: 0123}
nodes:
overrides:
- server: a
- {server: b, port: 1}
legacy: {a: [1, b], c: null}
"""


def test_a_yaml_file_is_read() -> None:
    assert read(VSPHERE_FILE, VSphere, source="vsphere.yaml") == VSphere(
        vcenter={
            "tenant-1": Center("10.0.0.1", 443, insecure_flag=True, datacenters=("dc1", "dc2")),
            "tenant-2": Center("10.0.0.2", 8443, datacenters=("dc3",)),
        },
        labels={"zone": "on", "region": "0123"},
        overrides=[Center("a"), Center("b", 1)],
        legacy={"a": ["1", "b"], "c": None},
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vcenter:\n  a:\n    sever: x", ["v.yaml:3: vcenter.a.sever: is unknown",
                                          "v.yaml:3: vcenter.a.server: is required"]),
        ("vcenter:\n  a: text", ["v.yaml:2: vcenter.a: must be a section"]),
        ("vcenter: text", ["v.yaml:1: vcenter: must hold sections"]),
        ("labels: [a]", ["v.yaml:1: labels: must be a section"]),
        ("labels:\n  a: [b]", ["v.yaml:2: labels.a: must be a single value"]),
        ("labels:\n  a: null", ["v.yaml:2: labels.a: needs a value"]),
        ("nodes: x", ["v.yaml:1: nodes: must be a section"]),
        ("labels: {}\nlabels: {}", ["v.yaml:2: labels: is given twice"]),
        ("? [a]\n: b", ["v.yaml:1: the name of an entry must be plain text"]),
        ("- a", ["v.yaml:1: must be a mapping"]),
        ("a: b\n c: d", ["v.yaml:2: is not YAML: "]),
        ("a: \x01", ["v.yaml:1: holds a character"]),
        ("---\na: b\n---\nc: d", ["v.yaml:3: is not YAML: "]),
        ("&a [*a]", ["v.yaml:1: is nested too deeply"]),
        ("overrides:\n- text", ["v.yaml:2: overrides: "]),
        ("[" * 5000, ["v.yaml:1: is nested too deeply"]),
    ],
)  # fmt: skip
def test_yaml_errors_name_line_and_place(text: str, found: list[str]) -> None:
    problems = problems_of(text, VSphere, "v.yaml")
    assert len(problems) == len(found)
    for problem, start in zip(problems, found, strict=True):
        assert problem.startswith(start)


class Azure(ConfigSection, frozen=True, rename="camel"):
    tenant_id: str
    use_managed_identity_extension: bool = False
    cloud_provider_backoff_retries: int = 0
    tags_map: dict[str, str] = msgspec.field(default_factory=dict)


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"tenantId": "t",\n\t"useManagedIdentityExtension": true,\n\t"tagsMap": {"a": "b"}}',
        "tenantId: t\nuseManagedIdentityExtension: true\ntagsMap:\n  a: b\n",
    ],
)
def test_json_and_yaml_are_decoded_alike(text: str) -> None:
    expected = Azure("t", use_managed_identity_extension=True, tags_map={"a": "b"})
    assert read(text, Azure, source="azure") == expected


def test_characters_that_json_escapes_as_pairs_are_whole() -> None:
    text = r'{"tenantId": "\ud83d\ude00\u00fc\/"}'
    assert read(text, Azure, source="azure.json").tenant_id == "\U0001f600ü/"


def test_json_errors_name_the_line() -> None:
    (problem,) = problems_of('{"tenantId": "t",\n"x": 1}', Azure, "azure.json")
    assert problem.startswith("azure.json:2: x: is unknown; known are tenantId, useManaged")
    (problem,) = problems_of('{"tenantId": "t",\n}', Azure, "azure.json")
    assert problem.startswith("azure.json:")
    assert "is not JSON" in problem


@pytest.mark.parametrize(
    ("text", "source", "format_"),
    [
        ("[s]\nwhole = 1", "x", None),
        ("; c\n# c\n\n [s]\nwhole = 1", "x", None),
        ("\ufeff[s]\nwhole = 1", "x", None),
        ("# c\ns: {whole: 1}", "x", None),
        ("s: {whole: 1}", "x.conf", None),
        ('{"s": {"whole": 1}}', "x.conf", None),
        ("{s: {whole: 1}}", "x.yml", None),
        ("s.whole = 1", "x.toml", None),
        ("s.whole = 1", "x.conf", "toml"),
        ("{s: {whole: 1}}", "x.conf", "yaml"),
    ],
)
def test_the_format_is_recognised_by_name_or_text(
    text: str, source: str, format_: str | None
) -> None:
    assert read(text, Root, source=source, format_=format_).s.whole == 1


@pytest.mark.parametrize("text", ["labels: {a: hunter2}", "{labels: {a: hunter2}}"])
def test_no_representation_of_a_tree_shows_a_value(text: str) -> None:
    root, _ = parse(text, Format.YAML)
    assert "hunter2" not in repr(root)


@pytest.mark.parametrize("source", ["x.yaml", "x.conf", "x"])
def test_an_empty_file_is_the_defaults(source: str) -> None:
    assert read("", Root, source=source) == Root()
    assert read("# nothing\n", Root, source=source) == Root()
    assert read("null", Root, source="x.yaml") == Root()


class Checked(ConfigSection, frozen=True):
    low: int = 0
    high: int = 0

    def problems(self) -> Iterator[str]:
        if self.low > self.high:
            raise ValueError("low must not exceed high")
        if self.high > 9:
            yield from ("high is too high", "so it is", "high is too high")


class CheckedRoot(ConfigSection, frozen=True):
    s: Checked = Checked()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("low = 2\nhigh = 1", ["c.conf:1: [s]: low must not exceed high"]),
        ("high = 10", ["c.conf:1: [s]: high is too high", "c.conf:1: [s]: so it is"]),
    ],
)
def test_what_a_struct_itself_refuses_is_reported_with_its_section(
    body: str, found: list[str]
) -> None:
    assert problems_of(f"[s]\n{body}", CheckedRoot) == found


def test_a_section_that_is_made_in_code_checks_itself_too() -> None:
    assert Checked(high=9).high == 9
    with pytest.raises(ConfigError) as raised:
        Checked(high=10)
    assert raised.value.problems == ("high is too high", "so it is")


class Official(ConfigSection, frozen=True, rename=camel_case("ID", "VPC")):
    vpc_id: str = ""
    valid: bool = True
    global_: int = 0


def test_fields_have_the_names_of_official_files() -> None:
    names = [field.encode_name for field in msgspec.structs.fields(Official)]
    assert names == ["VPCID", "Valid", "Global"]
    assert read("VpcId: v-1", Official, source="c.yaml").vpc_id == "v-1"
    found = problems_of("Valid: perhaps", Official, source="c.yaml")
    assert found == ["c.yaml:1: Valid: must be true or false"]


@given(st.text(), st.sampled_from(["x.conf", "x.yaml", "x.json", "x.toml", "x"]))
def test_any_text_is_decoded_or_refused_with_a_config_error(text: str, source: str) -> None:
    problems: tuple[str, ...] = ()
    try:
        read(text, VSphere, source=source)
    except ConfigError as error:
        problems = error.problems
    assert all(problem.startswith(f"{source}:") for problem in problems)
