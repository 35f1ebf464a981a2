"""Broken cloud-configs, in every dialect, and all that is said about each of them."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proreus.cloudprovider.config import ConfigSection, read
from proreus.cloudprovider.errors import ConfigError

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Mode(StrEnum):
    SHARED = "Shared"
    OWN = "Own"


class Login(ConfigSection, frozen=True):
    url: str
    user: str = ""
    password: str = ""
    api_key: int = 0
    token: Annotated[str, msgspec.Meta(min_length=20)] | None = None


class Balancer(ConfigSection, frozen=True):
    mode: Mode = Mode.SHARED
    port: Port = 80
    wait: timedelta = timedelta()
    internal: bool = False
    networks: tuple[str, ...] = ()
    low: int = 0

    def __post_init__(self) -> None:
        if self.low > self.port:
            raise ConfigError(("low: must not exceed port",))


class Class(ConfigSection, frozen=True):
    network: str


class Config(ConfigSection, frozen=True):
    login: Login
    balancer: Balancer = Balancer()
    balancer_class: dict[str, Class] = msgspec.field(default_factory=dict)
    legacy: dict[str, Any] = msgspec.field(default_factory=dict)


class Tolerant(ConfigSection, frozen=True):
    ignore_unknown: ClassVar[bool] = True

    port: Port = 80


NOT_SHOWN = "(not shown; a value that begins with *, & or ! needs quotation marks)"

BROKEN: dict[str, tuple[str, str]] = {
    "gcfg: a misspelt section": (
        "[Login]\nurl = x\n[Balancr]\nport = 1\n",
        "f.conf:3: [Balancr]: is unknown; did you mean balancer?",
    ),
    "gcfg: a misspelt key, and one like no other": (
        "[Login]\nurl = x\nu-sr = me\ncolour = red\n",
        """\
        f.conf:3: [Login] u-sr: is unknown; did you mean user?
        f.conf:4: [Login] colour: is unknown; known are url, user, password, api_key, token""",
    ),
    "gcfg: a required key is missing": (
        "[Login]\nuser = me\n[Login]\npassword = x",
        "f.conf:3: [Login] url: is required",
    ),
    "gcfg: a required section is missing": ("[Balancer]\n", "f.conf:1: login.url: is required"),
    "gcfg: quotes are not closed, and the next lines are read": (
        '[Login]\nurl = x\npassword = "hunter2\n[Balancer]\nport = "1\n',
        """\
        f.conf:3: [Login] password: the quotation mark is not closed on its line: add a "
        f.conf:5: [Balancer] port: the quotation mark is not closed on its line: add a \"""",
    ),
    "gcfg: backslashes": (
        '[Login]\nurl = x\npassword = hunter\\2\nuser = "hunter\\2"\n',
        r"""
        f.conf:3: [Login] password: a backslash must end its line, or be written as \\ within quotes
        f.conf:4: [Login] user: unknown escape: only \n, \t, \b, \" and \\ may stand in quotes""",
    ),
    "gcfg: headers that are none": (
        '[Login]\nurl = x\n[Balancer\nport = 0\n[BalancerClass ""]\n[]\n[Login] user = me\n',
        """\
        f.conf:3: [Balancer]: the header is not closed: write [section] or [section "subsection"]
        f.conf:5: [BalancerClass]: the subsection "" is empty: leave the quotation marks out
        f.conf:6: expected a section name
        f.conf:7: [Login]: unexpected text after the section or the value""",
    ),
    "gcfg: a secret that goes on in a line of its own, and begins as a header does": (
        '[Login]\nurl = x\npassword = abc\n[hunter2\n[hunter "2\n[hunter2 ""]\n',
        """\
        f.conf:4: the header is not closed: write [section] or [section "subsection"]
        f.conf:5: the quotation mark is not closed on its line: add a "
        f.conf:6: the subsection "" is empty: leave the quotation marks out""",
    ),
    "gcfg: the same within a quotation mark that is not closed": (
        '[Login]\nurl = x\npassword = "abc\n[hunter2\n[hunter] 2\n[hunter2 "2] 2"\n[Balancer] ; 2\nx = 1',
        """\
        f.conf:3: [Login] password: the quotation mark is not closed on its line: add a "
        f.conf:8: [Balancer] x: is unknown; known are mode, port, wait, internal, networks, low""",
    ),
    "gcfg: values of the wrong type, also where a later one counts": (
        """\
[Login]
url = x
api-key = hunter2
token = hunter2
[Balancer]
port = 0
mode = Both
wait = 5
wait = 5s
internal = perhaps
""",
        """\
        f.conf:3: [Login] api-key: must be a whole number
        f.conf:4: [Login] token: is not a valid value (it is not shown)
        f.conf:6: [Balancer] port: Expected `int` >= 1
        f.conf:7: [Balancer] mode: must be one of Shared, Own
        f.conf:8: [Balancer] wait: must be a duration with its unit, such as 30s or 1m30s
        f.conf:10: [Balancer] internal: must be true or false""",
    ),
    "gcfg: a key without a value": ("[Login]\nurl\n", "f.conf:2: [Login] url: needs a value"),
    "gcfg: no equals sign, no key": (
        "[Login]\nurl x\n= x\n",
        """\
        f.conf:2: [Login] url: expected = after the key
        f.conf:3: [Login]: expected a [section], a key or a comment""",
    ),
    "gcfg: a subsection where none belongs, and one that lacks something": (
        '[Login "a"]\nurl = x\n[Login]\nurl = x\n[BalancerClass "b"]\n',
        """\
        f.conf:1: [Login "a"]: takes no subsection
        f.conf:5: [BalancerClass "b"] network: is required""",
    ),
    "gcfg: a key before the first section": (
        "url = x\n[Login]\nurl = x",
        "f.conf:1: url: stands before the first [section]: move it below one, or name a TOML file *.toml",
    ),
    "gcfg: what the section itself refuses": (
        "[Login]\nurl = x\n[Balancer]\nlow = 81\n",
        "f.conf:3: [Balancer]: low: must not exceed port",
    ),
    "yaml: misspelt names": (
        "login: {url: x, usr: me}\nbalancr: {}\n",
        """\
        f.yaml:1: login.usr: is unknown; did you mean user?
        f.yaml:2: balancr: is unknown; did you mean balancer?""",
    ),
    "yaml: names given twice": (
        "login:\n  url: x\n  url: y\n  password: hunter2\n  password: hunter2\n",
        """\
        f.yaml:3: login.url: is given twice
        f.yaml:5: login.password: is given twice""",
    ),
    "yaml: wrong kinds": (
        "login: {url: x, password: [hunter2]}\nbalancer: [a]\nbalancer_class: {a: {}, b: text}\n",
        """\
        f.yaml:1: login.password: must be a single value
        f.yaml:2: balancer: must be a section
        f.yaml:3: balancer_class.b: must be a section
        f.yaml:3: balancer_class.a.network: is required""",
    ),
    "yaml: null where a value must be": (
        "login: {url: null}\nlegacy: {a: {b: null}}\n",
        "f.yaml:1: login.url: is required",
    ),
    "yaml: no mapping": ("- login\n", "f.yaml:1: must be a mapping of names to values"),
    "yaml: a tab": (
        "login:\n\turl: x\n",
        "f.yaml:2: is not YAML: found character '\\t' that cannot start any token",
    ),
    "yaml: an undefined alias": (
        "login: *there\n",
        f"f.yaml:1: is not YAML: found undefined alias {NOT_SHOWN}",
    ),
    "yaml: a password that begins with a sign of YAML's own": (
        "login:\n  url: x\n  password: !hunter!2\n",
        f"f.yaml:3: is not YAML: found undefined tag handle {NOT_SHOWN}",
    ),
    "gcfg: a value that goes on in lines of its own": (
        "[Login]\nurl = x\npassword = abc\nhunter/2+3\nhunter2\nhunter2==\nhunter: 2\n",
        """\
        f.conf:4: [Login]: expected = after the key
        f.conf:5: [Login] (a name without a value): is unknown; known are url, user, password, api_key, token
        f.conf:6: [Login] (a name without a value): is unknown; known are url, user, password, api_key, token
        f.conf:7: [Login]: expected = after the key""",
    ),
    "toml: a value that goes on in lines of its own": (
        "[login]\nurl = 'x'\npassword = 'abc\nhunter2==\n",
        """\
        f.toml:3: login.password: is not TOML: Expected "'"
        f.toml:4: login: is not TOML: Invalid value""",
    ),
    "yaml: values of the wrong type": (
        "login: {url: x, api_key: hunter2}\nbalancer:\n  port: 65536\n  networks: [a, [b]]\n",
        """\
        f.yaml:1: login.api_key: must be a whole number
        f.yaml:3: balancer.port: Expected `int` <= 65535
        f.yaml:4: balancer.networks: must be a single value""",
    ),
    "json: values of the wrong type": (
        '{\n "login": {"url": "x", "apiKey": "hunter2"},\n "balancer": {"port": "http"}}',
        """\
        f.json:2: login.apiKey: must be a whole number
        f.json:3: balancer.port: must be a whole number""",
    ),
    "json: cut off": (
        '{"login":\n {"url": "x", "password": "hunter2"}',
        "f.json:2: is not JSON: Expecting ',' delimiter",
    ),
    "json: a name given twice": (
        '{"login": {"url": "x"},\n "login": {}}',
        "f.json:2: login: is given twice",
    ),
    "json: no object": ('["login"]', "f.json:1: must be a mapping of names to values"),
    "toml: values without quotes, and the next lines are read": (
        '[login]\nurl = x\npassword = hunter2\n[balancer]\nmode = "Both"\n',
        """\
        f.toml:2: login.url: is not TOML: Invalid value
        f.toml:3: login.password: is not TOML: Invalid value
        f.toml:5: balancer.mode: must be one of Shared, Own""",
    ),
    "toml: names given twice": (
        '[login]\nurl = "x"\nurl = "y"\n[balancer]\n[login]\nuser = "b"\n[balancer]\nport = 0\n',
        """\
        f.toml:3: login.url: is given twice, or contradicts what stands above
        f.toml:5: login: is given twice, or contradicts what stands above
        f.toml:7: balancer: is given twice, or contradicts what stands above
        f.toml:8: balancer.port: Expected `int` >= 1""",
    ),
    "toml: an array without its comma": (
        '[login]\nurl = "x"\n[balancer]\nnetworks = [\n "a"\n "b",\n]\nport = 0',
        """\
        f.toml:6: balancer.networks: is not TOML: Unclosed array
        f.toml:8: balancer.port: Expected `int` >= 1""",
    ),
    "toml: a header that is none": (
        '[login\nurl = "x"\nusr = 1\n[balancer]\nport = "http"\n',
        """\
        f.toml:1: login: is not TOML: Expected ']' at the end of a table declaration
        f.toml:5: balancer.port: must be a whole number""",
    ),
    "toml: misspelt names and wrong kinds": (
        'login = "hunter2"\nbalancer.prt = 1\nbalancer_class.a.network = ["n"]\n',
        """\
        f.toml:1: login: must be a section
        f.toml:2: balancer.prt: is unknown; did you mean port?
        f.toml:3: balancer_class.a.network: must be a single value""",
    ),
    "toml: an array of tables": ('[[login]]\nurl = "x"\n', "f.toml:1: login: must be a section"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_all_that_is_wrong_with_a_file_is_reported_at_once(name: str) -> None:
    text, expected = BROKEN[name]
    ending = name.partition(":")[0].replace("gcfg", "conf")
    with pytest.raises(ConfigError) as caught:
        read(text, Config, source=f"f.{ending}")
    assert list(caught.value.problems) == [line.strip() for line in expected.strip().splitlines()]
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("prot = 1", "t.toml"),
        ("prot: 1", "t.yaml"),
        ('{"prot": 1}', "t.json"),
        ("[prot]", "t.conf"),
    ],
)
def test_where_unknown_names_are_ignored_they_are_named_in_a_warning(
    text: str, source: str
) -> None:
    warnings: list[str] = []
    assert read(text, Tolerant, source=source, warn=warnings.append) == Tolerant()
    (warning,) = warnings
    assert warning.startswith(f"{source}:1: ")
    assert warning.endswith(": is unknown and ignored")


SECRET = "zq9Xw7Vu"  # Unlike any word of a message.


@example(['"login": {', f"password = {SECRET}", "}"], "s.conf")
@example(['"login": {', f"password {SECRET}", "}"], "s.conf")
@given(
    st.lists(
        st.sampled_from(
            [
                "[login]", "[login", "[[login]]", '[login "x"]', "login:", '"login": {', "{", "}",
                f"password = {SECRET}", f'password = "{SECRET}', f"  password: {SECRET}",
                f'"password": "{SECRET}",', f"api_key = {SECRET}", f"  api-key: [{SECRET}]",
                f'token = "{SECRET}"', f'token = """{SECRET}', f"token = {SECRET}\\x",
                f"password {SECRET}", f"api_key: {{a: {SECRET}}}", f"password = '{SECRET}",
                f"password: *{SECRET}", f"  password: !{SECRET}!x", f"token: &{SECRET} &{SECRET}",
                SECRET, f"{SECRET}/x", f"{SECRET}==", f"{SECRET} x", "url = x", "  url: x", ",", "]",
            ]
        ),
        max_size=8,
    ),
    st.sampled_from(["s.conf", "s.yaml", "s.json", "s.toml", "s"]),
)  # fmt: skip
def test_no_mixture_of_dialects_shows_a_secret(lines: list[str], source: str) -> None:
    said: list[str] = []
    try:
        config = read("\n".join(lines), Config, source=source, warn=said.append)
        said.append(repr(config))
    except ConfigError as error:
        said.extend(error.problems)
    assert SECRET not in "\n".join(said)
