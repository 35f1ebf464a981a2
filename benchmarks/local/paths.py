"""Measure ways to one server: what clients get by each, and what a gateway's processor does for it.

Each time a client asks by another address of its own. Behind a node's port, or a load balancer that
does not translate clients' addresses, a pod sees the client's address and port as if it had been
asked directly, so a connection by one way looks like an older one by another, for as long as the
pod remembers that one (TIME_WAIT, a minute). Its clock of timestamps is another one, since Linux
has one for each pair of addresses, so the pod takes its SYN for a packet of the past (PAWS), and
the client sends it again only after its timeout. RFC 7323, section 5; tcp_timewait_state_process.
"""

import itertools
import json
import re
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from benchmarks.local.lab import NEAR, STREAM, WEB, Lab, Line, node
from labs.cluster.cluster import CLIENT
from labs.cluster.machines import Machine
from labs.cluster.network import IPV4

_ROUNDS = 5
_SECONDS = 5
_CLOSE = "Connection: close"
_SERVERS = ("haproxy", "iperf3")
_TICKS = 100  # a second, in /proc: USER_HZ of every Linux
_PAST = "no gateway"
_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
_HAPROXY = """\
global
    maxconn 2000
    nbthread 2
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 1m
    timeout server 1m
"""
_LISTENER = """\
listen port-{port}
    bind {address}:{port}
    server node-1 {node}:{node_port}
"""


class Way(NamedTuple):
    """A way to the server, from the machine `client`."""

    host: str
    web: int
    stream: int
    client: str = CLIENT


class Pages(NamedTuple):
    """What wrk says: answers each second, how many in all, and latencies in ms."""

    rate: float
    answers: int
    half: float
    slow: float


class Spent(NamedTuple):
    """What a piece of work costs: processor time, and packets through the gateway."""

    microseconds: float
    packets: float


def paths(lab: Lab) -> Iterator[Line]:
    """Measure what a client gets over four ways to one server."""
    ways = _ways(lab)
    streams: dict[str, list[float]] = {name: [] for name in ways}
    kept: dict[str, list[Pages]] = {name: [] for name in ways}
    fresh: dict[str, list[Pages]] = {name: [] for name in ways}
    again = dict.fromkeys(ways, 0)
    for _, (name, way) in itertools.product(range(_ROUNDS), ways.items()):
        machine = _new_client(lab, way)
        streams[name].append(_gigabytes(machine, way) / _SECONDS)
        kept[name].append(_pages(machine, way))
        before = _sent_again(machine)
        fresh[name].append(_pages(machine, way, _CLOSE))
        again[name] += _sent_again(machine) - before
    for name in ways:
        yield {
            "way": name,
            "Gbit/s": f"{statistics.median(streams[name]) * 8:.1f}",
            "requests/s": f"{_median(kept[name], 'rate'):,.0f}",
            "99 % within": f"{_median(kept[name], 'slow'):.1f} ms",
            "new connections/s": f"{_median(fresh[name], 'rate'):,.0f}",
            "50 % of them within": f"{_median(fresh[name], 'half'):.1f} ms",
            "99 % of them within": f"{_median(fresh[name], 'slow'):.1f} ms",
            "SYNs sent again": f"{again[name]:,} of {sum(one.answers for one in fresh[name]):,}",
        }


def cores(lab: Lab) -> Iterator[Line]:
    """Measure what a gateway's processor does, by what all of them do without the gateway.

    Client, gateway, node and server are on one machine, and the kernel does what a packet needs
    when it is sent. So the processor time of all programs, less that of the same requests from
    a neighbour of the node, is the gateway's.
    """
    ways = _ways(lab)
    past = ways.pop("its node's port")._replace(client=NEAR)
    ways.pop("the pod itself")
    spent: dict[str, dict[str, list[Spent]]] = {}
    for _, (name, way) in itertools.product(range(_ROUNDS), [(_PAST, past), *ways.items()]):
        machine = _new_client(lab, way)
        of_way = spent.setdefault(name, {})
        for work, do in _WORKS.items():
            of_way.setdefault(work, []).append(_spent(lab, machine, way, do))
    for (name, of_way), work in itertools.product(spent.items(), _WORKS):
        if name == _PAST:
            continue
        whole = statistics.median(one.microseconds for one in of_way[work])
        without = statistics.median(one.microseconds for one in spent[_PAST][work])
        packets = statistics.median(one.packets for one in of_way[work])
        yield {
            "way": name,
            "work": work,
            "all processors": f"{whole:,.0f} µs",
            "without a gateway": f"{without:,.0f} µs",
            "the gateway": f"{whole - without:,.0f} µs",
            "one core": f"{1e6 / (whole - without):,.0f}/s",
            "packets": f"{packets:,.1f}",
            "a packet": f"{(whole - without) / packets:,.2f} µs",
        }


def _ways(lab: Lab) -> dict[str, Way]:
    """Start a server, and HAProxy on the gateway; answers the ways there are to the server."""
    lab.deploy("path", node=node(1))
    address = lab.expose("path", "path")
    ports = {one["port"]: one["nodePort"] for one in lab.get("service", "path")["spec"]["ports"]}
    (pod,) = lab.get("pods", "--selector=app=path")["items"]
    _start_haproxy(lab, ports)
    return {
        "the pod itself": Way(pod["status"]["podIP"], 8000, STREAM),
        "its node's port": Way(IPV4.node(1), ports[WEB], ports[STREAM]),
        "Proreus": Way(address, WEB, STREAM),
        "HAProxy on the gateway": Way(IPV4.client_gateway(), WEB, STREAM),
    }


def _new_client(lab: Lab, way: Way) -> Machine:
    """Return the client of a way, which asks by another address from now on."""
    machine, own = lab.machine(way.client), next(lab.free_addresses[way.client])
    machine.run("ip", "address", "add", f"{own}/32", "dev", "eth0")
    machine.run("ip", "route", "flush", f"{way.host}/32")
    (found,) = json.loads(machine.run("ip", "-json", "route", "get", way.host))
    via = ("via", found["gateway"]) if "gateway" in found else ()
    machine.run("ip", "route", "add", way.host, *via, "dev", "eth0", "src", own)
    return machine


def _start_haproxy(lab: Lab, ports: Mapping[int, int]) -> None:
    if lab.gateway.pid("haproxy"):
        return
    config = lab.gateway.directory / "haproxy.cfg"
    listeners = [
        _LISTENER.format(
            address=IPV4.client_gateway(), port=port, node=IPV4.node(1), node_port=ports[port]
        )
        for port in (WEB, STREAM)
    ]
    config.write_text("".join([_HAPROXY, *listeners]))
    lab.gateway.start("haproxy", shutil.which("haproxy") or "haproxy", "-db", "-f", str(config))
    time.sleep(1.0)


def _gigabytes(machine: Machine, way: Way) -> float:
    """Return how much one stream took there."""
    output = machine.run(
        *("iperf3", "--json", f"--time={_SECONDS}"),
        *(f"--client={way.host}", f"--port={way.stream}"),
    )
    return float(json.loads(output)["end"]["sum_received"]["bytes"]) / 1e9


def _pages(machine: Machine, way: Way, *headers: str) -> Pages:
    """Ask for pages by 32 connections."""
    more = [word for header in headers for word in ("-H", header)]
    url = f"http://{way.host}:{way.web}/"
    return parse_pages(
        machine.run(*("wrk", "--latency", "-t", "2", "-c", "32", "-d", f"{_SECONDS}s"), *more, url)
    )


def parse_pages(output: str) -> Pages:
    """Parse what wrk says at its end.

    Raises:
        RuntimeError: it says something else, or had no answers.
    """
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    count = re.search(r"(\d+) requests in ", output)
    times = {
        share: float(number) * _UNITS[unit]
        for share, number, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s|m)\b", output)
    }
    if rate is None or count is None or not int(count[1]) or not {"50", "99"} <= times.keys():
        raise RuntimeError(f"wrk said: {output}")
    return Pages(float(rate[1]), int(count[1]), times["50"], times["99"])


def _median(pages: list[Pages], field: str) -> float:
    return float(statistics.median(getattr(one, field) for one in pages))


def _requests(machine: Machine, way: Way) -> float:
    return _pages(machine, way).answers


def _connections(machine: Machine, way: Way) -> float:
    return _pages(machine, way, _CLOSE).answers


_WORKS: Mapping[str, Callable[[Machine, Way], float]] = {
    "a GB of a stream": _gigabytes,
    "a request": _requests,
    "a new connection": _connections,
}


def _spent(lab: Lab, machine: Machine, way: Way, do: Callable[[Machine, Way], float]) -> Spent:
    """Return what each piece of a work costs."""
    packets, servers, client = _packets(lab), _servers_time(lab), _clients_time()
    pieces = do(machine, way)
    client, servers = _clients_time() - client, _servers_time(lab) - servers
    return Spent((servers + client) * 1e6 / pieces, (_packets(lab) - packets) / pieces)


def _packets(lab: Lab) -> int:
    """Return how many packets there were between the gateway and the client beyond it."""
    (shown,) = json.loads(lab.gateway.run("ip", "-json", "-stats", "link", "show", "clients0"))
    return int(sum(shown["stats64"][way]["packets"] for way in ("rx", "tx")))


def _servers_time(lab: Lab) -> float:
    """Return seconds of processor time of servers and HAProxy."""
    shown = lab.gateway.run("sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null; true")
    return parse_ticks(shown, _SERVERS) / _TICKS


def parse_ticks(shown: str, names: Collection[str]) -> int:
    """Add up the ticks of processes of these names, as /proc/PID/stat shows them."""
    total = 0
    for line in shown.splitlines():
        name, _, rest = line.partition("(")[2].rpartition(")")
        if name in names:
            total += sum(map(int, rest.split()[11:13]))
    return total


def _clients_time() -> float:
    """Return seconds of processor time of what this process has started and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sent_again(machine: Machine) -> int:
    return parse_sent_again(machine.run("cat", "/proc/net/netstat"))


def parse_sent_again(shown: str) -> int:
    """Return how many SYNs were sent again, as /proc/net/netstat shows it."""
    heads, values = (line.split() for line in shown.splitlines() if line.startswith("TcpExt:"))
    return int(values[heads.index("TCPSynRetrans")])
