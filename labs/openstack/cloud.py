"""Starts and stops all services, in order."""

import grp
import os
import pwd
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from labs.openstack import packages, seed, services, settings
from labs.openstack.packages import PYTHON, PackagesError, Report

OCTAVIA_WORKER = "octavia-worker"
"""The service that does what Octavia's API has accepted; until then load balancers are PENDING."""

_INSIDE = Path(__file__).parent / "inside"
_STATE = "state"
_READY = "ready"
_PATIENCE = 300.0
_PAUSE = 0.3
_DATABASES = ("keystone", "placement", "nova_api", "nova", "nova_cell0", "neutron", "octavia")
_DIRECTORIES = (
    *("db", "log", "run", "lock", "nova", "neutron", "drivers"),
    *(f"balancers/{name}" for name in ("waiting", "doing", "broken")),
)
_WAL = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('pragma journal_mode=wal')"
_PLACEMENT = "import sys; from placement.cmd.manage import main; sys.exit(main())"
_DRIVERS = {
    "neutron.ml2.mechanism_drivers": "proreus = proreus_drivers.ports:MechanismDriver",
    "octavia.api.drivers": "proreus = proreus_drivers.balancers:Provider",
}


class OpenStackError(Exception):
    """The cloud could not be started; the text says why."""


def running() -> "Cloud | None":
    """Return the cloud on this machine, if all of it runs."""
    found = Cloud()
    there = services.all_of(found.state)
    is_up = (found.state / _READY).exists() and all(one.runs() for one in there.values())
    return found if is_up else None


class Cloud:
    """The one such cloud on this machine."""

    def __init__(self) -> None:
        """Start nothing."""
        self.state = packages.cache() / _STATE

    @property
    def config(self) -> str:
        """A cloud-config for the provider, of the first project."""
        return seed.cloud_config(seed.PROJECT)

    def up(self, report: Report = lambda _: None) -> None:
        """Start anew, with nothing of an earlier one.

        Raises:
            OpenStackError: It cannot be started.
        """
        self.down()
        try:
            root = packages.ensure(report)
        except PackagesError as error:
            raise OpenStackError(str(error)) from error
        self._check_ports()
        for name in _DIRECTORIES:
            (self.state / name).mkdir(parents=True)
        settings.write(self.state, root)
        environment = self._environment(root)
        try:
            self._start(root, environment, report)
        except BaseException:
            services.stop_all(self.state)
            raise
        (self.state / _READY).touch()

    def down(self) -> None:
        """Stop what runs, and remove what it has kept."""
        services.stop_all(self.state)
        shutil.rmtree(self.state, ignore_errors=True)

    def status(self) -> dict[str, bool]:
        """Tell whether each service runs."""
        return {name: one.runs() for name, one in services.all_of(self.state).items()}

    def kill(self, name: str) -> None:
        """End one service at once; what it was at stays as it is. `restart` goes on with it."""
        services.kill(name, self.state)

    def restart(self, name: str) -> None:
        """Start a service again that was killed."""
        services.restart(name, self.state)

    def break_balancer(self, name: str) -> None:
        """Let the next change of the load balancer of that name end in the state ERROR."""
        (self.state / "balancers/broken" / name).touch()

    def _environment(self, root: Path) -> dict[str, str]:
        """With our drivers, which the services find as those of any package."""
        metadata = self.state / "drivers" / "proreus_drivers-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: proreus-drivers\nVersion: 1\n"
        )
        groups = "".join(f"[{group}]\n{driver}\n" for group, driver in _DRIVERS.items())
        (metadata / "entry_points.txt").write_text(groups)
        found = packages.environment(root)
        paths = (str(self.state / "drivers"), str(_INSIDE), found["PYTHONPATH"])
        return {**found, "PYTHONPATH": ":".join(paths)}

    def _start(self, root: Path, environment: dict[str, str], report: Report) -> None:
        begun = time.monotonic()
        report("making databases")
        self._databases(root, environment)
        report("starting keystone")
        ports = {name: str(port) for name, port in settings.PORTS.items()}
        state = str(self.state)

        def run(name: str, program: str, *arguments: str) -> None:
            command = (str(PYTHON), program, *arguments)
            services.start(name, command, self.state, environment)

        run("keystone", _inside("run_keystone.py"), state, ports["keystone"], ports["image"])
        self._wait("keystone", "/v3")
        seed.identity()
        report("starting placement, Nova, Neutron and Octavia")
        run("placement", _inside("run_placement.py"), state, ports["placement"])
        neutron = str(root / "usr/bin/neutron-server")
        run("neutron", neutron, "--config-file", f"{state}/neutron.conf")
        run("octavia", _inside("run_octavia.py"), state, ports["octavia"])
        run(OCTAVIA_WORKER, _inside("run_octavia_worker.py"), state)
        self._wait("placement", "/")
        run("nova", _inside("run_nova.py"), state)
        for name in ("neutron", "octavia", "nova"):
            self._wait(name, "/")
        seed.network()
        self._until("nova", seed.has_compute)
        report(f"ready after {time.monotonic() - begun:.0f} s")

    def _databases(self, root: Path, environment: dict[str, str]) -> None:
        bin_ = root / "usr/bin"
        state = self.state
        for name in (
            "keystone",
            "placement",
            "nova_api",
            "nova",
            "nova_cell0",
            "neutron",
            "octavia",
        ):
            self._run(environment, "-c", _WAL, str(state / "db" / f"{name}.db"))
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
        me = ("--keystone-user", user, "--keystone-group", group)
        keystone = (str(bin_ / "keystone-manage"), "--config-file", f"{state}/keystone.conf")
        self._run(environment, *keystone, "db_sync")
        self._run(environment, *keystone, "fernet_setup", *me)
        self._run(environment, *keystone, "credential_setup", *me)
        self._run(
            environment,
            *keystone,
            "bootstrap",
            "--bootstrap-password",
            settings.PASSWORD,
            *(
                part
                for interface in ("public", "internal", "admin")
                for part in (f"--bootstrap-{interface}-url", settings.url("keystone", "/v3"))
            ),
            "--bootstrap-region-id",
            settings.REGION,
        )
        self._run(
            environment, "-c", _PLACEMENT, "--config-file", f"{state}/placement.conf", "db", "sync"
        )
        nova = (str(bin_ / "nova-manage"), "--config-file", f"{state}/nova.conf")
        self._run(environment, *nova, "api_db", "sync")
        cell0 = settings.database(state, "nova_cell0")
        self._run(environment, *nova, "cell_v2", "map_cell0", "--database_connection", cell0)
        self._run(environment, *nova, "db", "sync")
        self._run(environment, *nova, "cell_v2", "create_cell", "--name", "cell1")
        for name in ("neutron", "octavia"):
            url = settings.database(state, name)
            self._run(environment, _inside("make_tables.py"), name, url)
        neutron = (str(bin_ / "neutron-db-manage"), "--config-file", f"{state}/neutron.conf")
        self._run(environment, *neutron, "stamp", "heads")

    def _run(self, environment: dict[str, str], *command: str) -> None:
        done = subprocess.run(
            [str(PYTHON), *command],
            cwd=self.state,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        with (self.state / "log" / "databases.out").open("a") as log:
            log.write(f"== {' '.join(command)}\n{done.stdout}{done.stderr}\n")
        if done.returncode != 0:
            raise OpenStackError(services.last_words(self.state, "databases"))

    def _check_ports(self) -> None:
        for port in seed.listening():
            with socket.socket() as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    tried.bind(("127.0.0.1", port))
                except OSError as error:
                    raise OpenStackError(f"port {port} is taken by another program") from error

    def _wait(self, name: str, path: str) -> None:
        """Wait until the service answers anything."""
        url = settings.url(name, path)

        def answers() -> bool:
            try:
                with urllib.request.urlopen(url, timeout=10):  # noqa: S310 - on loopback
                    return True
            except urllib.error.HTTPError:
                return True
            except OSError:
                return False

        self._until(name, answers)

    def _until(self, name: str, done: Callable[[], bool]) -> None:
        """Wait for something that the service does."""
        until = time.monotonic() + _PATIENCE
        while not done():
            if not services.all_of(self.state)[name].runs():
                raise OpenStackError(f"{name} has ended; {services.last_words(self.state, name)}")
            if time.monotonic() > until:
                raise OpenStackError(
                    f"{name} is not ready; {services.last_words(self.state, name)}"
                )
            time.sleep(_PAUSE)


def _inside(name: str) -> str:
    return str(_INSIDE / name)
