"""The cloud-config of the provider `rackspace`: the file of Kubernetes' old provider, unmodified.

That one refused names that it did not know; so they are refused here. The sections [Client],
[CloudLoadBalancers] and [Tenants] are ours.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.ownership import Tenants
from proreus.cloudprovider.sections import Client

US_IDENTITY: Final = "https://identity.api.rackspacecloud.com/v2.0/"
"""Rackspace's identity service outside the United Kingdom."""
MOST_NODES: Final = 50
"""The nodes that support lets a load balancer have at most."""


class Global(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Global]: which account, in which region.

    Attributes:
        auth_url: The URL of Rackspace's identity service, with or without /v2.0; by default that of
            the US.
        username: The user.
        user_id: Not used: Rackspace's identity takes names.
        password: The user's password, where there is no API key.
        api_key: The user's API key, which is used in preference to a password.
        tenant_id: The account's number, where the user has several.
        tenant_name: The account's name, in place of `tenant_id`.
        domain_id: Not used.
        domain_name: Not used.
        region: The region, such as ORD.
    """

    auth_url: str = US_IDENTITY
    username: str = ""
    user_id: str = ""
    password: str = ""
    api_key: str = ""
    tenant_id: str = ""
    tenant_name: str = ""
    domain_id: str = ""
    domain_name: str = ""
    region: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        url = urlsplit(self.auth_url)
        if self.auth_url and (url.scheme not in {"http", "https"} or not url.hostname):
            yield f"auth-url: give a URL such as {US_IDENTITY}"
        if not self.username:
            instead = " in the place of user-id" if self.user_id else ""
            yield f"username: give the user's name{instead}"
        if not (self.api_key or self.password):
            yield "api-key: give the user's API key, or password"


class LoadBalancer(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [LoadBalancer]: how nodes are checked. Kubernetes' own provider read it only.

    Attributes:
        subnet_id: Not used: Cloud Load Balancers stand in no subnet.
        create_monitor: Whether nodes are checked, by connecting to their node ports.
        monitor_delay: The time between two checks; 0 is 10 seconds.
        monitor_timeout: How long to wait for a connection; 0 is 10 seconds.
        monitor_max_retries: Failed checks until a node gets no traffic; 0 is 3.
    """

    subnet_id: str = ""
    create_monitor: bool = False
    monitor_delay: timedelta = timedelta()
    monitor_timeout: timedelta = timedelta()
    monitor_max_retries: int = 0

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for name, value, most in (
            ("monitor-delay", self.monitor_delay, 3600),
            ("monitor-timeout", self.monitor_timeout, 300),
        ):
            seconds = value.total_seconds()
            if value and not (seconds.is_integer() and 1 <= seconds <= most):
                yield f"{name}: give whole seconds from 1s to {most}s"
        if not 0 <= self.monitor_max_retries <= 10:  # noqa: PLR2004 - the API's limit
            yield "monitor-max-retries: give a number from 1 to 10"


class CloudLoadBalancers(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [CloudLoadBalancers], of ours: whether Services get load balancers.

    Attributes:
        enabled: Whether Services get load balancers. Kubernetes' own provider made none.
        max_nodes: The most nodes that a load balancer may have: 25, unless support has raised the
            account's NODE_LIMIT.
    """

    enabled: bool = True
    max_nodes: int = 25

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not 1 <= self.max_nodes <= MOST_NODES:
            yield f"max-nodes: give a number from 1 to {MOST_NODES}"


class RackspaceConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole file."""

    global_: Global
    load_balancer: LoadBalancer = msgspec.field(default_factory=LoadBalancer)
    cloud_load_balancers: CloudLoadBalancers = msgspec.field(default_factory=CloudLoadBalancers)
    client: Client = msgspec.field(default_factory=Client)
    tenants: Tenants = msgspec.field(default_factory=Tenants)
