# mypy: ignore-errors
"""A provider driver of Octavia that makes nothing: it writes down what is to be done.

A worker, `run_octavia_worker.py`, soon says that all is there. Until then the load balancer is
immutable, as with any driver. Octavia makes the port of the VIP.
"""

from octavia_lib.api.drivers import provider_base

from . import jobs

_ACTIVE = {"provisioning_status": "ACTIVE", "operating_status": "ONLINE"}
_DELETED = {"provisioning_status": "DELETED", "operating_status": "OFFLINE"}


def _given(parent, field):
    found = getattr(parent, field, None)
    return found if isinstance(found, list) else []


class Provider(provider_base.ProviderDriver):
    """Hands over every change: then this object is there, or gone."""

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
        jobs.write(loadbalancer.loadbalancer_id, _ACTIVE, made)

    def loadbalancer_update(self, old_loadbalancer, _):
        """Hand it over."""
        jobs.write(old_loadbalancer.loadbalancer_id, _ACTIVE, {})

    def loadbalancer_delete(self, loadbalancer, cascade=False):  # noqa: FBT002
        """With all that it is made of."""
        jobs.write(loadbalancer.loadbalancer_id, _DELETED, {})

    def _in_pool(self, kind, pool_id, states):
        from octavia.db import api, repositories

        pool = repositories.PoolRepository().get(api.get_session(), id=pool_id)
        jobs.write(pool.load_balancer_id, _ACTIVE, {"pools": [(pool_id, _ACTIVE)], kind: states})

    def listener_create(self, listener):
        """Hand it over."""
        made = {"listeners": [(listener.listener_id, _ACTIVE)]}
        jobs.write(listener.loadbalancer_id, _ACTIVE, made)

    def listener_update(self, old_listener, _):
        """Hand it over."""
        self.listener_create(old_listener)

    def listener_delete(self, listener):
        """Hand it over."""
        gone = {"listeners": [(listener.listener_id, _DELETED)]}
        jobs.write(listener.loadbalancer_id, _ACTIVE, gone)

    def pool_create(self, pool):
        """Hand it over."""
        jobs.write(pool.loadbalancer_id, _ACTIVE, {"pools": [(pool.pool_id, _ACTIVE)]})

    def pool_update(self, old_pool, _):
        """Hand it over."""
        self.pool_create(old_pool)

    def pool_delete(self, pool):
        """Hand it over."""
        jobs.write(pool.loadbalancer_id, _ACTIVE, {"pools": [(pool.pool_id, _DELETED)]})

    def member_create(self, member):
        """Hand it over."""
        self._in_pool("members", member.pool_id, [(member.member_id, _ACTIVE)])

    def member_update(self, old_member, _):
        """Hand it over."""
        self.member_create(old_member)

    def member_delete(self, member):
        """Hand it over."""
        self._in_pool("members", member.pool_id, [(member.member_id, _DELETED)])

    def member_batch_update(self, pool_id, members):
        """Set the members: those that are named stay, others go."""
        from octavia.db import api, repositories

        there, _ = repositories.MemberRepository().get_all(api.get_session(), pool_id=pool_id)
        stay = {one.member_id for one in members}
        gone = [(one.id, _DELETED) for one in there if one.id not in stay]
        self._in_pool("members", pool_id, [*((id_, _ACTIVE) for id_ in stay), *gone])

    def health_monitor_create(self, healthmonitor):
        """Hand it over."""
        made = [(healthmonitor.healthmonitor_id, _ACTIVE)]
        self._in_pool("healthmonitors", healthmonitor.pool_id, made)

    def health_monitor_update(self, old_healthmonitor, _):
        """Hand it over."""
        self.health_monitor_create(old_healthmonitor)

    def health_monitor_delete(self, healthmonitor):
        """Hand it over."""
        gone = [(healthmonitor.healthmonitor_id, _DELETED)]
        self._in_pool("healthmonitors", healthmonitor.pool_id, gone)
