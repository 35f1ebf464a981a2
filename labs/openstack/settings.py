"""The configuration files of the services."""

from pathlib import Path
from typing import Final

FIRST_PORT: Final = 21500
"""The first of the ports on loopback; one such cloud runs on a machine."""
PORTS: Final = {
    name: FIRST_PORT + n
    for n, name in enumerate(("keystone", "image", "placement", "nova", "neutron", "octavia"))
}
"""By service; `image` is the stub that Nova asks about images."""
MOST_ROUTES: Final = 52
"""On one router."""
REGION: Final = "RegionOne"
"""The only region."""
PASSWORD: Final = "for-tests-only"  # noqa: S105
"""Of every user: the cloud is of this machine only, and there is nothing in it."""

Section = dict[str, object]
Sections = dict[str, Section]


def url(service: str, path: str = "") -> str:
    """Return the URL at which a service listens."""
    return f"http://127.0.0.1:{PORTS[service]}{path}"


def write(state: Path, root: Path) -> None:
    """Write them all into `state`; `root` is where the packages are."""
    for name, sections in {
        "keystone": _keystone(state),
        "placement": _placement(state),
        "nova": _nova(state, root),
        "neutron": _neutron(state, root),
        "octavia": _octavia(state),
    }.items():
        sections["DEFAULT"] = {"log_file": state / "log" / f"{name}.log"} | sections["DEFAULT"]
        (state / f"{name}.conf").write_text(_text(sections))


def database(state: Path, name: str) -> str:
    """Return the address of a database; a writer waits for another."""
    return f"sqlite:///{state}/db/{name}.db?timeout=60"


def _text(sections: Sections) -> str:
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in section.items()) + "\n"
        for name, section in sections.items()
    )


def _user(name: str) -> Section:
    return {
        "auth_type": "password",
        "auth_url": url("keystone"),
        "project_domain_name": "Default",
        "user_domain_name": "Default",
        "project_name": "service",
        "username": name,
        "password": PASSWORD,
        "region_name": REGION,
    }


def _guarded(name: str) -> Section:
    return {**_user(name), "www_authenticate_uri": url("keystone")}


def _keystone(state: Path) -> Sections:
    return {
        "DEFAULT": {},
        "database": {"connection": database(state, "keystone")},
        "token": {"provider": "fernet"},
        "fernet_tokens": {"key_repository": state / "fernet"},
        "credential": {"key_repository": state / "credential"},
    }


def _placement(state: Path) -> Sections:
    return {
        "DEFAULT": {},
        "api": {"auth_strategy": "keystone"},
        "placement_database": {"connection": database(state, "placement")},
        "keystone_authtoken": _guarded("placement"),
    }


def _nova(state: Path, root: Path) -> Sections:
    return {
        "DEFAULT": {
            "state_path": state / "nova",
            "transport_url": "fake:///",  # all of Nova is one process
            "compute_driver": "fake.FakeDriver",
            "host": "compute1",
            "my_ip": "127.0.0.1",
            "osapi_compute_listen": "127.0.0.1",
            "osapi_compute_listen_port": PORTS["nova"],
            "vif_plugging_is_fatal": False,
            "vif_plugging_timeout": 0,
            "heal_instance_info_cache_interval": 5,
            "periodic_fuzzy_delay": 0,
        },
        "api": {"auth_strategy": "keystone", "max_limit": 20},
        "api_database": {"connection": database(state, "nova_api")},
        "database": {"connection": database(state, "nova")},
        "wsgi": {"api_paste_config": root / "usr/share/nova-common/api-paste.ini"},
        "scheduler": {"discover_hosts_in_cells_interval": 2},
        "quota": {"driver": "nova.quota.NoopQuotaDriver"},
        "glance": {"endpoint_override": url("image")},
        "oslo_concurrency": {"lock_path": state / "lock"},
        "placement": _user("placement"),
        "neutron": {**_user("neutron"), "service_metadata_proxy": False},
        "keystone_authtoken": _guarded("nova"),
    }


def _neutron(state: Path, root: Path) -> Sections:
    return {
        "DEFAULT": {
            "state_path": state / "neutron",
            "bind_host": "127.0.0.1",
            "bind_port": PORTS["neutron"],
            "core_plugin": "ml2",
            "service_plugins": "router,trunk",
            "max_routes": MOST_ROUTES,
            "api_paste_config": root / "usr/share/neutron-common/api-paste.ini",
            "transport_url": "fake:///",
            "api_workers": 0,
            "rpc_workers": 0,
            "rpc_state_report_workers": 0,
            "auth_strategy": "keystone",
            "notify_nova_on_port_status_changes": False,
            "notify_nova_on_port_data_changes": False,
            "dhcp_agent_notification": False,
            "pagination_max_limit": 20,
        },
        "database": {"connection": database(state, "neutron")},
        "oslo_concurrency": {"lock_path": state / "lock"},
        "ml2": {
            "type_drivers": "flat,local",
            "tenant_network_types": "local",
            "mechanism_drivers": "proreus",
            "extension_drivers": "port_security",
        },
        "ml2_type_flat": {"flat_networks": "*"},
        "securitygroup": {"enable_security_group": True},
        "quotas": {f"quota_{what}": -1 for what in ("port", "network", "subnet", "router")},
        "keystone_authtoken": _guarded("neutron"),
    }


def _octavia(state: Path) -> Sections:
    return {
        "DEFAULT": {"transport_url": "fake:///"},
        "api_settings": {
            "auth_strategy": "keystone",
            "enabled_provider_drivers": "proreus:for tests",
            "default_provider_driver": "proreus",
        },
        "database": {"connection": database(state, "octavia")},
        "certificates": {"cert_generator": "local_cert_generator"},
        "service_auth": _user("octavia"),
        "neutron": {"endpoint_override": url("neutron"), "region_name": REGION},
        "controller_worker": {"amp_image_tag": "none"},
        "keystone_authtoken": _guarded("octavia"),
    }
