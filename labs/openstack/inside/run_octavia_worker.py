# mypy: ignore-errors
"""Octavia's worker: it does what the API has handed over with our driver, after a while.

Started in the directory of the cloud's state: `run_octavia_worker.py STATE`.
"""

import json
import sys
import time

from octavia_lib.common.constants import DRVR_STATUS_CODE_OK
from proreus_drivers import jobs, sqlite

_SECONDS = 0.3
_PAUSE = 0.05
_LONGEST = 60.0
_ERROR = {"provisioning_status": "ERROR", "operating_status": "ERROR"}


class Worker:
    """Works on one job after another."""

    def __init__(self):
        """With Octavia's own database."""
        from octavia.api.drivers.driver_agent.driver_updater import DriverUpdater
        from octavia.db import api, repositories

        self._updater = DriverUpdater()
        self._session = api.get_session
        self._of = {
            "loadbalancers": repositories.LoadBalancerRepository(),
            "listeners": repositories.ListenerRepository(),
            "pools": repositories.PoolRepository(),
            "members": repositories.MemberRepository(),
            "healthmonitors": repositories.HealthMonitorRepository(),
        }

    def work(self):
        """Work for ever, first on what was begun before a restart."""
        while True:
            for path in sorted(jobs.DOING.glob("*.json")):
                self._do(path)
            for path in sorted(jobs.WAITING.glob("*.json")):
                if time.time() - path.stat().st_mtime >= _SECONDS:
                    doing = jobs.DOING / path.name
                    path.rename(doing)
                    self._do(doing)
            time.sleep(_PAUSE)

    def _do(self, path):
        """Leave the file where it is as long as it is not done: it is tried again."""
        job = json.loads(path.read_text())
        states = {"loadbalancers": [(job["balancer"], job["state"])], **job["parts"]}
        found = {(kind, id_): self._get(kind, id_) for kind in states for id_, _ in states[kind]}
        if not any(one.provisioning_status.startswith("PENDING") for one in found.values() if one):
            # The API has not committed yet; or it never will; or all was done before a restart.
            if time.time() - path.stat().st_mtime > _LONGEST:
                path.unlink()
            return
        balancer = found["loadbalancers", job["balancer"]]
        mark = jobs.BROKEN / balancer.name
        if mark.exists():
            states = {kind: [(id_, _ERROR) for id_, _ in of] for kind, of in states.items()}
        else:
            states = self._with_parts(states, balancer)
        statuses = {
            kind: [{"id": id_, **state} for id_, state in of] for kind, of in states.items()
        }
        answer = self._updater.update_loadbalancer_status(statuses)
        if answer["status_code"] == DRVR_STATUS_CODE_OK:
            mark.unlink(missing_ok=True)
            path.unlink()
        else:
            print(f"{balancer.name}: {answer}", flush=True)
            time.sleep(1)

    def _get(self, kind, id_):
        return self._of[kind].get(self._session(), id=id_)

    def _with_parts(self, states, balancer):
        """With the parts of what goes: Octavia keeps them unless it is told."""
        there = {pool.id: pool for pool in balancer.pools}
        ((_, state),) = states["loadbalancers"]
        if _is_gone(state):
            states["listeners"] = [(one.id, state) for one in balancer.listeners]
            states["pools"] = [(id_, state) for id_ in there]
        for id_, of_pool in states.get("pools", ()):
            if _is_gone(of_pool) and id_ in there:
                pool = there[id_]
                monitors = [pool.health_monitor] if pool.health_monitor else []
                for kind, parts in (("members", pool.members), ("healthmonitors", monitors)):
                    states.setdefault(kind, []).extend((one.id, of_pool) for one in parts)
        return states


def _is_gone(state):
    return state["provisioning_status"] == "DELETED"


def main():
    """Read Octavia's configuration, and work."""
    state = sys.argv[1]
    from octavia.common import service

    sqlite.one_writer_at_a_time()
    service.prepare_service(["octavia-worker", "--config-file", f"{state}/octavia.conf"])
    Worker().work()


if __name__ == "__main__":
    main()
