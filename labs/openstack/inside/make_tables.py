# mypy: ignore-errors
"""Tables of Neutron and Octavia: `make_tables.py neutron|octavia URL`.

Their migrations need what SQLite cannot do, so the tables are made from the models.
"""

import sys

import sqlalchemy as sa


def neutron(engine):
    """Make all tables of Neutron; the migrations count as done."""
    from neutron.db.migration.models import head

    head.get_metadata().create_all(engine)


def octavia(engine):
    """Make all tables of Octavia, and fill those of constants."""
    from octavia.common import constants as own
    from octavia.db import base_models, models  # noqa: F401 - the models register themselves
    from octavia_lib.common import constants as lib

    base_models.BASE.metadata.create_all(engine)
    tables = base_models.BASE.metadata.tables
    names = {
        "provisioning_status": "SUPPORTED_PROVISIONING_STATUSES",
        "operating_status": "SUPPORTED_OPERATING_STATUSES",
        "protocol": "LISTENER_SUPPORTED_PROTOCOLS",
        "algorithm": "SUPPORTED_LB_ALGORITHMS",
        "health_monitor_type": "SUPPORTED_HEALTH_MONITOR_TYPES",
        "session_persistence_type": "SUPPORTED_SP_TYPES",
        "lb_topology": "SUPPORTED_LB_TOPOLOGIES",
        "l7policy_action": "SUPPORTED_L7POLICY_ACTIONS",
        "l7rule_type": "SUPPORTED_L7RULE_TYPES",
        "l7rule_compare_type": "SUPPORTED_L7RULE_COMPARE_TYPES",
        "client_authentication_mode": "SUPPORTED_CLIENT_AUTH_MODES",
    }
    with engine.begin() as connection:
        for table, constant in names.items():
            values = getattr(own, constant, None) or getattr(lib, constant)
            if table == "protocol":
                values = set(values) | set(getattr(own, "SUPPORTED_PROTOCOLS", ()))
                values |= set(lib.POOL_SUPPORTED_PROTOCOLS)
            for value in values:
                connection.execute(tables[table].insert().values(name=value))


def main():
    """Make them."""
    what, url = sys.argv[1:]
    {"neutron": neutron, "octavia": octavia}[what](sa.create_engine(url))


if __name__ == "__main__":
    main()
