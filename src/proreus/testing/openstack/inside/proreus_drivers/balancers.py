# mypy: ignore-errors
"""A provider driver of Octavia that makes nothing, and soon says that all is there.

Until then the load balancer is immutable, as with any driver. Octavia makes the port of the VIP.
"""

import threading
import time

from octavia_lib.api.drivers import provider_base

_SECONDS = 0.3
_ACTIVE = {"provisioning_status": "ACTIVE", "operating_status": "ONLINE"}
_DELETED = {"provisioning_status": "DELETED", "operating_status": "OFFLINE"}


def _given(parent, field):
    found = getattr(parent, field, None)
    return found if isinstance(found, list) else []


class Provider(provider_base.ProviderDriver):
    """Answers for every object: here it is, or: it is gone."""

    def _say(self, find_balancer=None, **objects):
        """Tell Octavia the states of `objects` by kind, and that the load balancer is active."""
        from octavia.api.drivers.driver_agent.driver_updater import DriverUpdater

        def say():
            time.sleep(_SECONDS)
            status = {
                kind: [{"id": id_, **state} for id_, state in of] for kind, of in objects.items()
            }
            if find_balancer is not None:
                status["loadbalancers"] = [{"id": find_balancer(), **_ACTIVE}]
            DriverUpdater().update_loadbalancer_status(status)

        threading.Thread(target=say, daemon=True).start()

    def create_vip_port(self, *_, **__):
        """Let Octavia do it."""
        raise NotImplementedError

    def loadbalancer_create(self, loadbalancer):
        """With everything that it is made of."""
        made = {kind: [] for kind in ("listeners", "pools", "members", "healthmonitors")}
        pools = list(_given(loadbalancer, "pools"))
        for listener in _given(loadbalancer, "listeners"):
            made["listeners"].append((listener.listener_id, _ACTIVE))
            default = getattr(listener, "default_pool", None)
            if hasattr(default, "pool_id"):
                pools.append(default)
        for pool in {pool.pool_id: pool for pool in pools}.values():
            made["pools"].append((pool.pool_id, _ACTIVE))
            made["members"] += [(one.member_id, _ACTIVE) for one in _given(pool, "members")]
            monitor = getattr(pool, "healthmonitor", None)
            if hasattr(monitor, "healthmonitor_id"):
                made["healthmonitors"].append((monitor.healthmonitor_id, _ACTIVE))
        self._say(loadbalancers=[(loadbalancer.loadbalancer_id, _ACTIVE)], **made)

    def loadbalancer_update(self, old_loadbalancer, _):
        """Done."""
        self._say(loadbalancers=[(old_loadbalancer.loadbalancer_id, _ACTIVE)])

    def loadbalancer_delete(self, loadbalancer, cascade=False):  # noqa: FBT002
        """With all that it is made of."""
        self._say(loadbalancers=[(loadbalancer.loadbalancer_id, _DELETED)])

    def _changed(self, kind, of, id_, state):
        self._say(lambda: of.loadbalancer_id, **{kind: [(id_, state)]})

    def _in_pool(self, kind, pool_id, states):
        from octavia.db import api, repositories

        def balancer():
            pool = repositories.PoolRepository().get(api.get_session(), id=pool_id)
            return pool.load_balancer_id

        self._say(balancer, pools=[(pool_id, _ACTIVE)], **{kind: states})

    def listener_create(self, listener):
        """Done."""
        self._changed("listeners", listener, listener.listener_id, _ACTIVE)

    def listener_update(self, old_listener, _):
        """Done."""
        self._changed("listeners", old_listener, old_listener.listener_id, _ACTIVE)

    def listener_delete(self, listener):
        """Done."""
        self._changed("listeners", listener, listener.listener_id, _DELETED)

    def pool_create(self, pool):
        """Done."""
        self._changed("pools", pool, pool.pool_id, _ACTIVE)

    def pool_update(self, old_pool, _):
        """Done."""
        self._changed("pools", old_pool, old_pool.pool_id, _ACTIVE)

    def pool_delete(self, pool):
        """Done."""
        self._changed("pools", pool, pool.pool_id, _DELETED)

    def member_create(self, member):
        """Done."""
        self._in_pool("members", member.pool_id, [(member.member_id, _ACTIVE)])

    def member_update(self, old_member, _):
        """Done."""
        self._in_pool("members", old_member.pool_id, [(old_member.member_id, _ACTIVE)])

    def member_delete(self, member):
        """Done."""
        self._in_pool("members", member.pool_id, [(member.member_id, _DELETED)])

    def member_batch_update(self, pool_id, members):
        """Those that are named stay, others go."""
        from octavia.db import api, repositories

        there, _ = repositories.MemberRepository().get_all(api.get_session(), pool_id=pool_id)
        stay = {one.member_id for one in members}
        gone = [(one.id, _DELETED) for one in there if one.id not in stay]
        self._in_pool("members", pool_id, [*((id_, _ACTIVE) for id_ in stay), *gone])

    def health_monitor_create(self, healthmonitor):
        """Done."""
        made = [(healthmonitor.healthmonitor_id, _ACTIVE)]
        self._in_pool("healthmonitors", healthmonitor.pool_id, made)

    def health_monitor_update(self, old_healthmonitor, _):
        """Done."""
        made = [(old_healthmonitor.healthmonitor_id, _ACTIVE)]
        self._in_pool("healthmonitors", old_healthmonitor.pool_id, made)

    def health_monitor_delete(self, healthmonitor):
        """Done."""
        gone = [(healthmonitor.healthmonitor_id, _DELETED)]
        self._in_pool("healthmonitors", healthmonitor.pool_id, gone)
