# mypy: ignore-errors
"""A mechanism driver of ML2 that binds every port, on every host, at once; and one for trunks."""

from neutron.services.trunk.drivers import base
from neutron_lib import constants
from neutron_lib.plugins.ml2 import api

from . import sqlite


class TrunkDriver(base.DriverBase):
    """Takes every trunk, without an agent."""

    is_loaded = True


class MechanismDriver(api.MechanismDriver):
    """Binds what it is asked for; there is no switch."""

    def initialize(self):
        """Let the trunk plugin find our driver. Neutron repeats what ends in a deadlock."""
        sqlite.locked_is_deadlock()
        self._trunks = TrunkDriver("proreus", ("ovs",), ("vlan",), can_trunk_bound_port=True)

    def bind_port(self, context):
        """Bind to the first segment."""
        for segment in context.segments_to_bind[:1]:
            context.set_binding(
                segment[api.ID], "ovs", {"port_filter": True}, status=constants.PORT_STATUS_ACTIVE
            )
