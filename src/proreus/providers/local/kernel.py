"""Run `nft` and `ip`, and read and write the kernel's settings. Everything here blocks."""

import contextlib
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.providers.local import network, nft, nft_changes
from proreus.providers.local.config import Gateway
from proreus.providers.local.expressions import Json
from proreus.providers.local.network import Interface, Ways
from proreus.providers.local.nft import Program

PATIENCE: Final = 20.0
"""Seconds that one run of a program may take."""

_SETTINGS: Final = Path("/proc/sys/net")
_KINDS: Final = ("dummy", "bridge")  # some kernels are without the first one
_LONGEST: Final = 400
_GONE: Final = ("No such file or directory", "No such process")


class Observed(msgspec.Struct, frozen=True):
    """The kernel's state: tables (None: there is none), routes by family, interfaces.

    `own` are all addresses of the machine, those of the loopback among them.
    """

    program: Program | None
    silence: Program | None
    ways: Mapping[str, Ways]
    interfaces: tuple[Interface, ...]
    settings: Mapping[str, int]
    device: bool
    own: frozenset[str] = frozenset()


class Kernel:
    """The kernel of this machine, or of the network namespace that the thread is in."""

    def __init__(self, gateway: Gateway) -> None:
        """Keep the names and numbers of `gateway`."""
        self._gateway = gateway

    def show(self) -> Observed:
        """Read tables, routes, interfaces and settings of the kernel.

        Raises:
            CloudError: A program is missing or refuses.
        """
        gateway = self._gateway
        links = self._ask("addr show", "")
        found = network.interfaces(links, gateway.device)
        ways = {}
        for family, option in network.FAMILIES.items():
            rules, routes, proxies = (
                self._ask(question.format(gateway.protocol), option)
                for question in network.QUESTIONS
            )
            ways[family] = network.parse_ways(rules, routes, proxies, gateway)
        names = (
            *network.QUESTIONABLE, *(f"ipv4/conf/{one.name}/rp_filter" for one in found),
        )  # fmt: skip
        settings = {name: value for name in names if (value := _setting(name)) is not None}
        device = any(link.get("ifname") == gateway.device for link in links)
        own = frozenset(
            each["local"] for link in links for each in link.get("addr_info", ()) if "local" in each
        )
        tables = self._table("inet"), self._table("arp")
        return Observed(*tables, ways, found, settings, device, own)

    def counters(self) -> Mapping[str, tuple[int, int]]:
        """Read packets and bytes of each counter.

        Raises:
            CloudError: `nft` is missing or refuses.
        """
        done = _run(["nft", "-j", "list", "counters", "table", "inet", self._gateway.nft_table])
        if done.returncode:
            return {}
        found = [one["counter"] for one in json.loads(done.stdout)["nftables"] if "counter" in one]
        return {one["name"]: (one["packets"], one["bytes"]) for one in found}

    def make_device(self) -> None:
        """Make the network device that leads nowhere.

        Raises:
            CloudError: The kernel refuses.
        """
        name = self._gateway.device
        refused = ""
        for kind in _KINDS:
            done = _run(["ip", "link", "add", name, "type", kind])
            refused = done.stderr.strip()
            if not done.returncode or "exists" in refused:
                break
        else:
            raise _refusal(f"make the device {name}", refused)
        self.take({"-4": [f"link set {name} addrgenmode none up"]})

    def remove_device(self) -> None:
        """Remove the network device that leads nowhere.

        Raises:
            CloudError: The kernel refuses.
        """
        self.take({"-4": [f"link del {self._gateway.device}"]})

    def take(
        self, lines: Mapping[str, Sequence[str]], settings: Iterable[tuple[str, int]] = ()
    ) -> None:
        """Write interface settings, then run lines of `ip -batch`, by the family's option (-4, -6).

        Raises:
            CloudError: The kernel refuses a line; those before it are done.
        """
        _set(settings)
        for option, listed in lines.items():
            done = _run(["ip", option, "-batch", "-"], "\n".join(listed) + "\n")
            if done.returncode:
                raise _refusal("change routes", done.stderr)

    def drop(self, lines: Mapping[str, Sequence[str]]) -> None:
        """Run lines of `ip -batch` that delete; what is gone already is no failure.

        Raises:
            CloudError: The kernel refuses a line; the others are done.
        """
        for option, listed in lines.items():
            done = _run(["ip", option, "-force", "-batch", "-"], "\n".join(listed) + "\n")
            said = [one for one in done.stderr.splitlines() if "Command failed" not in one]
            if done.returncode and not all(one.endswith(_GONE) for one in said):
                raise _refusal("delete routes", done.stderr)

    def change(self, commands: Sequence[Json]) -> None:
        """Change the nftables table, all at once or not at all.

        Raises:
            CloudError: The kernel refuses.
        """
        if not commands:
            return
        done = _run(["nft", "-j", "-f", "-"], json.dumps({"nftables": commands}))
        if done.returncode:
            raise _refusal(f"change the table {self._gateway.nft_table}", done.stderr)

    def is_held(self) -> bool:
        """Tell whether the set that shows this machine alive still holds.

        A table without the set is of a time when it was to answer for ever: it does so still.
        Without a table there is nothing that could be out of date.

        Raises:
            CloudError: `nft` is missing or refuses.
        """
        table = self._gateway.nft_table
        done = _run(["nft", "-j", "list", "set", "inet", table, nft.ALIVE])
        if not done.returncode:
            return '"elem"' in done.stdout
        if "No such file" in done.stderr or "not supported" in done.stderr:
            return True
        raise _refusal(f"list the set {nft.ALIVE} of the table {table}", done.stderr)

    def _table(self, family: str) -> Program | None:
        table = self._gateway.nft_table
        done = _run(["nft", "-j", "list", "table", family, table])
        if not done.returncode:
            return nft_changes.parse_program(json.loads(done.stdout))
        if "No such file" in done.stderr or "not supported" in done.stderr:
            return None
        raise _refusal(f"list the table {table}", done.stderr)

    def _ask(self, question: str, option: str) -> Sequence[Mapping[str, Any]]:
        done = _run(["ip", "-N", "-j", *_given(option), *question.split()])
        if not done.returncode:
            found: list[Mapping[str, Any]] = json.loads(done.stdout or "[]")
            return [one for one in found if one]
        if "does not exist" in done.stderr or "not supported" in done.stderr:
            return []  # no such table yet; no IPv6 in this kernel
        raise _refusal(f"read with ip {question}", done.stderr)


def _given(option: str) -> Sequence[str]:
    return (option,) if option else ()


def _set(settings: Iterable[tuple[str, int]]) -> None:
    """Set kernel settings below /proc/sys/net, where they differ and can be set."""
    for name, value in settings:
        if _setting(name) not in {None, value}:
            # Without it first answers take a second; a read-only /proc is no failure.
            with contextlib.suppress(OSError):
                (_SETTINGS / name).write_text(f"{value}\n", encoding="ascii")


def _setting(name: str) -> int | None:
    try:
        return int((_SETTINGS / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _run(command: Sequence[str], given: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603 - no shell, and the words are checked ones
            command, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
    except FileNotFoundError:
        raise CloudError(
            f"the program {command[0]} is missing: install nftables and iproute2 on the gateway"
        ) from None
    except OSError as error:  # as while its package is upgraded, or memory is short
        raise CloudError(
            f"the program {command[0]} cannot be run: {error.strerror}; see that root can run it on"
            " the gateway, and that memory and processes are not used up"
        ) from error
    except subprocess.TimeoutExpired:
        raise CloudError(f"{command[0]} gave no answer in {PATIENCE:g} s") from None


def _refusal(what: str, output: str) -> CloudError:
    text = " ".join(output.split())[:_LONGEST]
    if "not permitted" in text:
        return Unauthenticated(
            f"cannot {what}: {text}; run the manager as root or with CAP_NET_ADMIN"
        )
    if "resolve protocol name" in text:
        # Slim images are without it; what nft says names neither the file nor the package.
        text += "; /etc/protocols is missing: install the package netbase"
    return CloudError(f"cannot {what}: {text}")
