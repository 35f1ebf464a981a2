"""Run `nft` and `ip`, and read and write the kernel's settings. Everything here blocks."""

import contextlib
import json
import logging
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.providers.local import memo, network, nft, nft_changes
from proreus.providers.local.config import Gateway
from proreus.providers.local.expressions import Json
from proreus.providers.local.network import Interface, Ways
from proreus.providers.local.nft import Program
from proreus.providers.local.plan import State

log = logging.getLogger(__name__)

PATIENCE: Final = 20.0
"""Seconds that one run of a program may take."""

_SETTINGS: Final = Path("/proc/sys/net")
_KINDS: Final = ("dummy", "bridge")  # some kernels are without the first one
_LONGEST: Final = 400
_EXISTS: Final = "File exists"
_FAILED_LINE: Final = re.compile(r"Command failed -:(\d+)")
_GONE: Final = ("No such file or directory", "No such process")


class Routed(CloudError):
    """The error that somebody else has a route to an address of a load balancer.

    Attributes:
        address: The address.
    """

    def __init__(self, message: str, address: str) -> None:
        """Keep the message and the address."""
        super().__init__(message)
        self.address = address


class Observed(msgspec.Struct, frozen=True):
    """The kernel's state: tables (None: there is none), routes by family, interfaces.

    `own` are the addresses of the machine (`network.of_machine`).
    """

    program: Program | None
    silence: Program | None
    ways: Mapping[str, Ways]
    interfaces: tuple[Interface, ...]
    settings: Mapping[str, int]
    device: bool
    own: frozenset[str] = frozenset()

    @property
    def state(self) -> State:
        """The state that the table remembers; an empty one without a table."""
        chains = self.program.chains if self.program is not None else {}
        return memo.read({name: one.comments for name, one in chains.items()})

    @property
    def serves_one(self) -> bool:
        """Whether the table is of a manager with `hold` or `vrrp`, and so for one cluster."""
        found = self.program
        return found is not None and (nft.ALIVE in found.sets or nft.SHARED in found.chains)


class Kernel:
    """The kernel of this machine, or of the network namespace that the thread is in."""

    def __init__(self, gateway: Gateway) -> None:
        """Keep the names and numbers of `gateway`."""
        self._gateway = gateway

    def show(self) -> Observed:
        """Read tables, routes, interfaces and settings of the kernel.

        Raises:
            CloudError: A program is missing or refuses, or the device or a table is not ours.
        """
        gateway = self._gateway
        links = self._ask("addr show", "")
        tables = self._table("inet"), self._table("arp")
        state = Observed(*tables, {}, (), {}, device=False).state
        known = network.addresses_of(state)
        found = network.interfaces(links, gateway.device)
        ways = {}
        for family, option in network.FAMILIES.items():
            rules, routes, proxies = (
                self._ask(question.format(gateway.protocol), option)
                for question in network.QUESTIONS
            )
            ways[family] = network.parse_ways(rules, routes, proxies, gateway, known)
        names = (
            *network.QUESTIONABLE, *(f"ipv4/conf/{one.name}/rp_filter" for one in found),
        )  # fmt: skip
        settings = {name: value for name in names if (value := _setting(name)) is not None}
        device = any(link.get("ifname") == gateway.device for link in links)
        routes = self._on_device() if device and not state.balancers else ()
        if problem := network.not_our_device(links, gateway, routes):
            raise CloudError(problem)
        self._check_apart(ways, state)
        own = network.of_machine(links)
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
    ) -> Sequence[Routed]:
        """Write interface settings, then run lines of `ip -batch`, by the family's option (-4, -6).

        Returns:
            The addresses to which somebody else has a route, with the errors that say so.

        Raises:
            CloudError: The kernel refuses a line; those before it are done.
        """
        _set(settings)
        routed = []
        for option, listed in lines.items():
            taken = self._routed_elsewhere(option, listed)
            routed += [_not_ours(one) for one in sorted(taken)]
            left = [one for one in listed if _target(one) not in taken]
            while left:
                done = _run(["ip", option, "-batch", "-"], "\n".join(left) + "\n")
                if not done.returncode:
                    break
                failed = _FAILED_LINE.search(done.stderr)
                count = int(failed[1]) if failed is not None else 0
                found = _routed(left[count - 1]) if count and _EXISTS in done.stderr else None
                if found is None:
                    raise _refusal("change routes", done.stderr)
                routed.append(found)
                left = left[count:]
        return routed

    def _routed_elsewhere(self, option: str, lines: Iterable[str]) -> Collection[str]:
        """Return the addresses of lines that add routes to which others have one, of any metric.

        Of the same metric the kernel says so, of another one the better one would count.
        """
        length = {option: network.LENGTH[family] for family, option in network.FAMILIES.items()}
        targets = filter(None, map(_target, lines))
        asked = "".join(f"route show table main exact {one}/{length[option]}\n" for one in targets)
        if not asked:
            return ()
        done = _run(["ip", "-N", "-j", option, "-batch", "-"], asked)
        if done.returncode:
            raise _refusal("read routes", done.stderr)
        found = (json.loads(row) for row in done.stdout.splitlines() if row.strip())
        return {
            one["dst"]
            for several in found
            for one in several
            if (one.get("protocol"), one.get("dev"))
            != (str(self._gateway.protocol), self._gateway.device)
        }

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

    def change(self, commands: Sequence[Json], held: Sequence[int] = ()) -> None:
        """Change the nftables table, all at once or not at all.

        The program has what is `held` for as long as it runs, also if this process is killed.

        Raises:
            CloudError: The kernel refuses.
        """
        if not commands:
            return
        done = _run(["nft", "-j", "-f", "-"], json.dumps({"nftables": commands}), held)
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
            listing = json.loads(done.stdout)
            if not nft_changes.is_ours(listing, family):
                raise CloudError(
                    f"the nftables table {family} {table} is not the manager's: set gateway"
                    " nft-table in the cloud-config to a name that no table has"
                )
            return nft_changes.parse_program(listing)
        if "No such file" in done.stderr or "not supported" in done.stderr:
            return None
        raise _refusal(f"list the table {table}", done.stderr)

    def _check_apart(self, ways: Mapping[str, Ways], known: State) -> None:
        """Refuse a device or routing tables that the manager of another nftables table has, too.

        Raises:
            CloudError: Ways that our table does not know are those of another one.
        """
        if all(network.led(one) <= network.leading(known) for one in ways.values()):
            return
        gateway = self._gateway
        done = _run(["nft", "-j", "list", "tables", "inet"])
        tables = nft_changes.names(json.loads(done.stdout)) if not done.returncode else ()
        for table in tables:
            done = _run(["nft", "-j", "list", "table", "inet", table])
            if table == gateway.nft_table or done.returncode:
                continue
            state = memo.read(nft_changes.comments(json.loads(done.stdout)))
            if network.meets(ways, known, state):
                raise CloudError(
                    f"the manager of the nftables table {table} has the device {gateway.device} or"
                    f" the routing tables from {gateway.first_table} on, and the protocol"
                    f" {gateway.protocol}, too: give both the same gateway nft-table in the"
                    " cloud-config, or this one a device, protocol, mark-mask, first-table and"
                    " rule-priority of its own; or, if the other one is no more, run 'nft delete"
                    f" table inet {table}' on this machine"
                )

    def _on_device(self) -> Sequence[Mapping[str, Any]]:
        question = f"route show table all dev {self._gateway.device}"
        return [one for way in network.FAMILIES.values() for one in self._ask(question, way)]

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


def _run(
    command: Sequence[str], given: str = "", held: Sequence[int] = ()
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(  # noqa: S603 - no shell, and the words are checked ones
            command, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False,
            pass_fds=held,
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


def bear(routed: Iterable[Routed], state: State) -> None:
    """Log to which addresses of load balancers somebody else has a route since they were made.

    Raises:
        Routed: An address is none of a load balancer in `state`: it has to be another one.
    """
    had = network.addresses_of(state)
    for error in routed:
        if error.address not in had:
            raise error
        log.error("A load balancer gets no traffic here: %s", error)


def _routed(line: str) -> Routed | None:
    """Return the error about a line of `ip -batch` for which the kernel has a route already."""
    if address := _target(line):
        return _not_ours(address)
    words = line.split()
    if words[:2] != ["route", "add"]:
        return None
    table = words[words.index("table") + 1]
    raise CloudError(
        f"the routing table {table} has a route of another program: set gateway first-table in the"
        " cloud-config to the first of numbers that nobody uses"
    )


def _target(line: str) -> str:
    """Return the address that a line of `ip -batch` routes to our device; "" for other lines."""
    words = line.split()
    is_address = words[:2] == ["route", "add"] and "via" not in words
    return words[2].partition("/")[0] if is_address else ""


def _not_ours(address: str) -> Routed:
    return Routed(
        f"the address {address} is routed elsewhere on this machine, by a route that is not the"
        " manager's: remove that, or take the address out of the pools in the cloud-config",
        address,
    )


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
