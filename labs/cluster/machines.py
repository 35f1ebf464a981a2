"""Machines made of namespaces, and all of them gone at once.

The gateway is a process in PID, mount, network and UTS namespaces of its own, started by
`unshare --kill-child`. A node or client is a process within them with a mount, network and UTS
namespace of its own. So the kernel cleans up: when the gateway ends, whoever killed it, all
processes of the cluster end with it, and with the last one their mounts, interfaces, routes and
nftables vanish. Only files and control groups stay.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from labs.cluster.errors import ClusterError
from labs.cluster.network import Command

GATEWAY = "gateway"
"""The machine that the others hang on."""

_ENTRY = ("nsenter", "--mount", "--net", "--uts")
_PATIENCE = 600.0  # of a machine that much else keeps busy

# Written by the process itself before it becomes the holder, with the time of its start: a killed
# maker leaves nothing that cannot be found, and a number used again is not taken for ours.
_RECORD = 'cat /proc/$$/stat >"$0.new" && mv "$0.new" "$0" && exec "$@"'

# A daemon; $0 is the file of its process id, $1 its log.
_DAEMON = 'echo $$ >"$0"; exec >>"$1" 2>&1 </dev/null; shift; exec "$@"'

# The same for a program that a system would start again, as the kubelet does with pods.
_SERVICE = 'while :; do "$@"; echo "ended with status $?; started again"; sleep 1; done'

# The kubelet insists on these values of the whole machine. It finds them in files bound over
# the real ones, in the cluster's mount namespace, and so changes nothing.
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class Machine:
    """One machine of a cluster; its files are in `directory`."""

    def __init__(self, name: str, directory: Path, entry: Sequence[str]) -> None:
        """A machine that runs already; `entry` is the command that enters its namespaces."""
        self.name = name
        self.directory = directory
        self.entry = tuple(entry)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs a program on this machine."""
        return [*self.entry, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Run a program on this machine to its end; answers what it printed.

        Raises:
            ClusterError: It failed, or did not end within ten minutes.
        """
        shown_command = " ".join(arguments)[:200]
        try:
            done = subprocess.run(
                self.command(*arguments),
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"{self.name}: {shown_command}: no end after {_PATIENCE:.0f} s"
            ) from None
        if done.returncode:
            output = (done.stderr or done.stdout).strip()[-2000:]
            raise ClusterError(
                f"{self.name}: {shown_command}: exit status {done.returncode}: {output}"
            )
        return done.stdout

    def run_all(self, commands: Iterable[Command]) -> None:
        """Run programs one after another.

        Raises:
            ClusterError: One failed.
        """
        for command in commands:
            self.run(*command)

    def start(self, name: str, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        """Start a program that stays, with the log `<name>.log`.

        Raises:
            ClusterError: The machine is gone.
        """
        files = (str(self.directory / f"{name}.pid"), str(self.log(name)))
        variables = [f"{key}={value}" for key, value in (environ or {}).items()]
        self.run("env", *variables, "setsid", "--fork", "sh", "-c", _DAEMON, *files, *arguments)

    def keep(self, name: str, *arguments: str) -> None:
        """Start a program that is started again whenever it ends.

        Raises:
            ClusterError: The machine is gone.
        """
        self.start(name, "sh", "-c", _SERVICE, name, *arguments)

    def log(self, name: str) -> Path:
        """Return the log of a program that was started."""
        return self.directory / f"{name}.log"

    def pid(self, name: str) -> int:
        """Return the process id, as the cluster counts, of a program that was started; 0 before."""
        try:
            return int((self.directory / f"{name}.pid").read_text() or 0)
        except FileNotFoundError:
            return 0

    def programs(self) -> dict[str, bool]:
        """Return the programs that were started, and whether each runs."""
        names = sorted(file.stem for file in self.directory.glob("*.pid"))
        running = set(self.run("ls", "/proc").split())
        return {name: str(self.pid(name)) in running for name in names}

    def kill(self, name: str, how: signal.Signals) -> None:
        """Send a signal to a program that was started here.

        Raises:
            ClusterError: It runs no more.
        """
        self.run("sh", "-c", f"kill -{how.value} {self.pid(name)}")


def start_gateway(directory: Path, pause: str) -> Machine:
    """Start the gateway with an empty network.

    Raises:
        ClusterError: It does not come up.
    """
    place = directory / GATEWAY
    place.mkdir(parents=True)
    record = directory / "holder"
    separate = ("--fork", "--kill-child", "--pid", "--mount", "--net", "--uts", "--mount-proc")
    with (place / "holder.log").open("wb") as log:
        subprocess.run(
            ["setsid", "--fork", "sh", "-c", _RECORD, str(record), "unshare", *separate, pause],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
        )
    deadline = time.monotonic() + _PATIENCE
    while (machine := gateway(directory, pause)) is None:
        if time.monotonic() > deadline:
            output = (place / "holder.log").read_text(errors="replace")
            raise ClusterError(f"no namespaces could be made: {output.strip()}")
        time.sleep(0.05)
    machine.run("hostname", GATEWAY)
    # Below /run lie the sockets and states of all programs, and of those of the real machine.
    machine.run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name, value in _TUNABLES.items():
        file = place / name.replace("/", ".")
        file.write_text(f"{value}\n")
        if Path("/proc/sys", name).exists():
            machine.run("mount", "--bind", str(file), f"/proc/sys/{name}")
    return machine


def gateway(directory: Path, pause: str) -> Machine | None:
    """Return the gateway of a cluster that runs, None if it does not."""
    holder = _holder(directory)
    if holder is None:
        return None
    children = Path(f"/proc/{holder}/task/{holder}/children")
    with contextlib.suppress(OSError):
        for child in children.read_text().split():
            if Path(f"/proc/{child}/exe").readlink() == Path(pause).resolve():
                entry = (*_ENTRY, "--pid", "--target", child)
                return Machine(GATEWAY, directory / GATEWAY, entry)
    return None


def start_machine(base: Machine, name: str, pause: str) -> Machine:
    """Start another machine within the gateway's namespaces, without a network.

    Raises:
        ClusterError: It does not come up.
    """
    place = base.directory.parent / name
    place.mkdir()
    base.start(f"holder-{name}", "unshare", "--mount", "--net", "--uts", pause)
    machine = member(base, name)
    deadline = time.monotonic() + _PATIENCE
    while base.run("readlink", f"/proc/{base.pid(f'holder-{name}')}/exe").strip() != pause:
        if time.monotonic() > deadline:
            raise ClusterError(f"{name}: no namespaces could be made")
        time.sleep(0.05)
    machine = member(base, name)
    machine.run("hostname", name)
    for place_of_its_own in ("/run", "/var/log", "/var/lib"):
        machine.run("mount", "-t", "tmpfs", "tmpfs", place_of_its_own)
    machine.run("mount", "--make-rshared", "/")
    return machine


def member(base: Machine, name: str) -> Machine:
    """Return a machine that was started within the gateway's namespaces."""
    entry = (*base.entry, *_ENTRY, "--target", str(base.pid(f"holder-{name}")))
    return Machine(name, base.directory.parent / name, entry)


def _holder(directory: Path) -> int | None:
    """Return the process that holds the cluster, None if it is gone."""
    try:
        pid, started = _identity((directory / "holder").read_text())
        if _identity(Path(f"/proc/{pid}/stat").read_text()) == (pid, started):
            return pid
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        pass
    return None


def _identity(stat: str) -> tuple[int, int]:
    """Process id and time of start, in ticks since boot; https://man7.org/…/proc_pid_stat.5 ."""
    pid, _, rest = stat.partition(" ")
    return int(pid), int(rest.rpartition(")")[2].split()[19])


def stop(directory: Path) -> None:
    """End the machines of a cluster, and all that runs on them; their files stay.

    Raises:
        ClusterError: They do not end.
    """
    deadline = time.monotonic() + _PATIENCE
    while (holder := _holder(directory)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise ClusterError(f"process {holder} does not end")
        time.sleep(0.05)
