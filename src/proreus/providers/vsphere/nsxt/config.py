"""The sections of the cloud-config that are about NSX-T, as the official manager has them.

`[NSXT]` says how a manager of NSX-T is reached, `[LoadBalancer]` and `[LoadBalancerClass "x"]` what
load balancers are made of, `[Route]` which router leads to pods.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from proreus.cloudprovider.config import ConfigSection

DEFAULT: Final = "default"
"""The name of the class of Services that name none."""
OWNER: Final = "vsphere-cloud-controller-manager"
"""The tag `owner` of what the official manager makes, unless `tags` say otherwise."""
SECRETS: Final = "/etc/cloud/nsxt"
"""Where the Secret with NSX-T's credentials is mounted by default."""
SIZES: Final = ("SMALL", "MEDIUM", "LARGE", "XLARGE", "DLB")
MOST_TAGS: Final = 16
"""The most additional tags: an object has at most 30, of which 14 are kept for marks."""
LONGEST_SCOPE: Final = 128
LONGEST_TAG: Final = 256
"""Characters of a tag's scope and value (NSX-T Policy API, type `Tag`)."""
_RESERVED: Final = frozenset({"cluster", "service", "port", "ippoolid", "lbclass"})


class Nsxt(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [NSXT]: how the manager of NSX-T is reached.

    Attributes:
        host: Its host name or address, with a port if that is not 443.
        user: Its user.
        password: The user's password.
        insecure_flag: Whether the certificate is not checked.
        ca_file: A file of CA certificates.
        remote_auth: Whether the user is one of VMware Identity Manager or of LDAP.
        secret_name: The Secret with `username` and `password`, which is mounted.
        secret_namespace: The namespace of that Secret.
        secrets_directory: The directory in which the Secret is mounted; of Proreus.
        vmc_access_token: A refresh token of VMware Cloud, which stands for user and password.
        vmc_auth_host: The host and path at which the refresh token is exchanged.
        client_auth_cert_file: A file with our certificate, which stands for user and password.
        client_auth_key_file: A file with the certificate's key.
    """

    ignore_unknown: ClassVar[bool] = True

    host: str = ""
    user: str = ""
    password: str = ""
    insecure_flag: bool = False
    ca_file: str = ""
    remote_auth: bool = False
    secret_name: str = ""
    secret_namespace: str = ""
    secrets_directory: str = ""
    vmc_access_token: str = ""
    vmc_auth_host: str = ""
    client_auth_cert_file: str = ""
    client_auth_key_file: str = ""

    @property
    def url(self) -> str:
        """The URL of the manager of NSX-T, without a path."""
        is_bare_ipv6 = self.host.count(":") > 1 and not self.host.startswith("[")
        return f"https://[{self.host}]" if is_bare_ipv6 else f"https://{self.host}"

    @property
    def needs_secret(self) -> bool:
        """Whether user and password are looked for in a mounted Secret."""
        others = (self.vmc_access_token, self.user, self.client_auth_cert_file)
        return not any(others) and bool(self.secret_name)

    @property
    def directory(self) -> str:
        """Where the Secret is mounted."""
        return self.secrets_directory or SECRETS

    def missing(self) -> Iterator[str]:
        """Report settings that a connection needs and that are missing."""
        if not self.host:
            yield "NSXT host: is required for load balancers and routes of NSX-T"
        elif "/" in self.host:
            yield "NSXT host: must be a host name or address, without https:// and path"
        if bool(self.vmc_access_token) != bool(self.vmc_auth_host):
            yield "NSXT: give vmc-access-token and vmc-auth-host, or neither"
        if bool(self.user) != bool(self.password):
            yield "NSXT: give user and password, or neither"
        if bool(self.client_auth_cert_file) != bool(self.client_auth_key_file):
            yield "NSXT: give client-auth-cert-file and client-auth-key-file, or neither"
        if bool(self.secret_name) != bool(self.secret_namespace):
            yield "NSXT: give secret-name and secret-namespace, or neither"
        known = (self.vmc_access_token, self.user, self.client_auth_cert_file, self.secret_name)
        if not any(known):
            yield (
                "NSXT: has no credentials: give user and password, client-auth-cert-file and"
                " client-auth-key-file, secret-name and secret-namespace, or vmc-access-token and"
                " vmc-auth-host"
            )


class ClassSection(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [LoadBalancerClass "x"]: what the load balancers of a class are made of.

    Of each pair one field is given; if neither is, [LoadBalancer] counts.

    Attributes:
        ip_pool_name: The name of the IP pool of their addresses.
        ip_pool_id: The id of the IP pool of their addresses.
        tcp_app_profile_name: The name of the application profile of TCP ports.
        tcp_app_profile_path: The path of the application profile of TCP ports.
        udp_app_profile_name: The name of the application profile of UDP ports.
        udp_app_profile_path: The path of the application profile of UDP ports.
    """

    ignore_unknown: ClassVar[bool] = True

    ip_pool_name: str = ""
    ip_pool_id: str = ""
    tcp_app_profile_name: str = ""
    tcp_app_profile_path: str = ""
    udp_app_profile_name: str = ""
    udp_app_profile_path: str = ""


class LoadBalancerSection(ClassSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [LoadBalancer]: the load balancer service of the cluster, and the default class.

    Attributes:
        size: The size of a load balancer service that is made: SMALL, MEDIUM, LARGE, XLARGE or DLB.
        lb_service_id: The id of an existing load balancer service, in the place of one that is
            made.
        tier1_gateway_path: The path of the tier-1 gateway on which a load balancer service is made.
        snat_disabled: Whether hosts see the clients' addresses; for load balancers in the packets'
            way.
        tags: Further tags of all objects that are made: a mapping, or its text in JSON. The tag
            `owner` replaces the official manager's name.
    """

    size: str = ""
    lb_service_id: str = ""
    tier1_gateway_path: str = ""
    snat_disabled: bool = False
    tags: Any = None

    @property
    def is_given(self) -> bool:
        """Whether any key is given that officially asks for load balancers."""
        keys = (self.size, self.lb_service_id, self.ip_pool_id, self.ip_pool_name)
        return any((*keys, self.tier1_gateway_path))

    @property
    def additional_tags(self) -> Mapping[str, str]:
        """The further tags; none if they are wrong, which `problems` reports."""
        found = self.tags
        if isinstance(found, str):
            try:
                found = json.loads(found) if found.strip() else {}
            except json.JSONDecodeError:
                return {}
        if not isinstance(found, Mapping):
            return {}
        return {str(scope): str(tag) for scope, tag in found.items()}

    @property
    def owner(self) -> str:
        """The tag `owner` of all objects that are made."""
        return self.additional_tags.get("owner", OWNER)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.size and self.size not in SIZES:
            yield f"size: must be one of {', '.join(SIZES)}"
        if self.tier1_gateway_path and not is_tier1(self.tier1_gateway_path):
            yield "tier1-gateway-path: must be a path such as /infra/tier-1s/my-gateway"
        tags = self.additional_tags
        if self.tags and not tags:
            yield 'tags: must be a mapping of scopes to tags, such as {"scope": "tag"}'
        if reserved := sorted(_RESERVED & tags.keys()):
            yield f"tags: {', '.join(reserved)}: must not be given, since marks have these scopes"
        if len(tags) > MOST_TAGS:
            yield f"tags: must be at most {MOST_TAGS}"
        for scope, tag in tags.items():
            if not 0 < len(scope) <= LONGEST_SCOPE or not 0 < len(tag) <= LONGEST_TAG:
                yield (
                    f"tags: {scope[:LONGEST_SCOPE]!r}: a scope has 1 to {LONGEST_SCOPE} characters,"
                    f" a tag 1 to {LONGEST_TAG}"
                )


class Route(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Route]: the router of NSX-T that leads to pods.

    Attributes:
        router_path: The path of a tier-1 gateway.
    """

    ignore_unknown: ClassVar[bool] = True

    router_path: str = ""

    def problems(self) -> Iterator[str]:
        """Report a path that is none of a tier-1 gateway."""
        if self.router_path and not is_tier1(self.router_path):
            yield "router-path: must be a path such as /infra/tier-1s/my-gateway"


class Reference(msgspec.Struct, frozen=True):
    """An object that the cloud-config names by its id (or path), or else by its name."""

    id: str = ""
    name: str = ""

    def __bool__(self) -> bool:
        """Tell whether an object is named."""
        return bool(self.id or self.name)

    @property
    def token(self) -> str:
        """The id or path, or the name in a form in which it is no path."""
        return self.id or f"name:{self.name}"


class LoadBalancerClass(msgspec.Struct, frozen=True):
    """A class of load balancers, with what it has from [LoadBalancer].

    Attributes:
        name: The name by which Services choose the class.
        pool: The IP pool of addresses.
        profiles: The application profiles, by TCP and UDP.
    """

    name: str
    pool: Reference
    profiles: Mapping[str, Reference]


def is_tier1(path: str) -> bool:
    """Tell whether a path is that of a tier-1 gateway. Pure."""
    parts = path.split("/")
    return parts[:3] == ["", "infra", "tier-1s"] and len(parts) == 4 and bool(parts[3])  # noqa: PLR2004


def classes(
    section: LoadBalancerSection, own: Mapping[str, ClassSection]
) -> Mapping[str, LoadBalancerClass]:
    """Return all classes by name, the default one always among them. Pure.

    As officially, settings of [LoadBalancerClass "default"] are defaults of the other classes, too.
    """
    default = _class(DEFAULT, section, None)
    if DEFAULT in own:
        default = _class(DEFAULT, own[DEFAULT], default)
    found = {DEFAULT: default}
    return found | {name: _class(name, one, default) for name, one in own.items()}


def _class(name: str, own: ClassSection, default: LoadBalancerClass | None) -> LoadBalancerClass:
    pool = Reference(own.ip_pool_id, own.ip_pool_name)
    profiles = {
        "TCP": Reference(own.tcp_app_profile_path, own.tcp_app_profile_name),
        "UDP": Reference(own.udp_app_profile_path, own.udp_app_profile_name),
    }
    if default is not None:
        pool = pool or default.pool
        profiles = {key: one or default.profiles[key] for key, one in profiles.items()}
    return LoadBalancerClass(name, pool, profiles)


def class_problems(section: LoadBalancerSection, own: Mapping[str, ClassSection]) -> Iterator[str]:
    """Report settings that load balancers need and that are missing. Pure."""
    if not (section.lb_service_id or section.tier1_gateway_path):
        yield "LoadBalancer: give lb-service-id or tier1-gateway-path"
    for where, one in {"LoadBalancer": section, **own}.items():
        place = where if one is section else f"LoadBalancerClass {where!r}"
        if one.ip_pool_id and one.ip_pool_name:
            yield f"{place}: give ip-pool-id or ip-pool-name, not both"
    found = classes(section, own)
    for name, made in found.items():
        place = "LoadBalancer" if name == DEFAULT else f"LoadBalancerClass {name!r}"
        if not made.pool:
            yield f"{place}: give ip-pool-id or ip-pool-name"
        for protocol, profile in made.profiles.items():
            if not profile:
                word = protocol.lower()
                yield f"{place}: give {word}-app-profile-name or {word}-app-profile-path"
