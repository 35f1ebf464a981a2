"""Read servers, ports and flavors in few requests."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import in_parts, some_of
from proreus.cloudprovider.ownership import EVERY_NAMESPACE, Tenants
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.nova.servers import Servers
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.machines import Wires
from proreus.providers.openstack.names import (
    foreign_project,
    is_called,
    misnamed,
    nodes_by_server,
)

MOST_IDS: Final = 100
"""Ids in one query: with 8,190 characters in a line of a request, as many servers allow."""
MOST_COMPARED: Final = 200
"""Servers that tell whether most have the names of their Nodes."""

_PORT_FIELDS = (
    "id", "device_id", "status", "fixed_ips", "network_id", "trunk_details", "mac_address",
    "allowed_address_pairs", "port_security_enabled", "revision_number", "project_id",
)  # fmt: skip


class Reader(Servers):
    """A reader of the project's servers, ports and flavors."""

    def __init__(self, api: Api, tenants: Tenants) -> None:
        """Keep the client of OpenStack, and `tenants`, which may list other projects."""
        super().__init__(api)
        self._api = api
        self._tenants = tenants
        self._flavors: dict[str, str] = {}

    async def wires(self, servers: Collection[str]) -> dict[str, Wires]:
        """Read the ports of servers, by the servers' ids.

        Raises:
            CloudError: Neutron gives no usable answer.
        """
        ports = await self.ports("device_id", servers)
        below = {
            str(sub["port_id"]): str(port["device_id"])
            for port in ports
            for sub in (port.get("trunk_details") or {}).get("sub_ports") or ()
        }
        trunked = await self.ports("id", below)
        networks = await self._networks({str(port["network_id"]) for port in trunked})
        of_server: dict[str, list[Described]] = {}
        for port in ports:
            of_server.setdefault(str(port["device_id"]), []).append(port)
        in_trunks: dict[str, list[tuple[str, Described]]] = {}
        for port in trunked:
            if network := networks.get(str(port["network_id"])):
                in_trunks.setdefault(below[id_of(port)], []).append((network, port))
        return {
            server: Wires(of_server.get(server, ()), in_trunks.get(server, ()))
            for server in servers
        }

    async def flavors(self, ids: Collection[str]) -> dict[str, str | CloudError]:
        """Read the names of flavors by id; "" where the flavor is gone. No flavor is renamed."""
        answers = await self._each(set(ids) - set(self._flavors), self._flavor)
        failed: dict[str, str | CloudError] = {}
        for id_, answer in answers.items():
            if isinstance(answer, CloudError):
                failed[id_] = answer
            else:
                self._flavors[id_] = answer
        return failed | {id_: self._flavors[id_] for id_ in ids if id_ in self._flavors}

    async def _flavor(self, id_: str) -> str:
        flavor = await self._api.find("nova", "flavor_get", f"flavors/{id_}", "flavor")
        return "" if flavor is None else str(flavor["name"])

    async def ports(
        self, by: str, ids: Collection[str], more: tuple[str, ...] = ()
    ) -> list[Described]:
        """Read the ports whose field `by` has one of the values `ids`; with `more` fields.

        Raises:
            CloudError: Neutron gives no usable answer.
        """
        return await self._listed("port_list", "ports", by, ids, _PORT_FIELDS + more)

    async def subnets(self, by: str, ids: Collection[str]) -> list[Described]:
        """Read the subnets whose field `by` has one of the values `ids`.

        Raises:
            CloudError: Neutron gives no usable answer.
        """
        fields = ("id", "cidr", "gateway_ip", "host_routes", "dns_nameservers")
        return await self._listed("subnet_list", "subnets", by, ids, fields)

    async def subnets_of(self, addresses: Mapping[str, str]) -> dict[str, str]:
        """Return the subnet in which each server has its address, without those that lack it.

        Args:
            addresses: An address by the id of its server.

        Raises:
            CloudError: Neutron gives no usable answer.
        """
        wires = await self.wires(addresses)
        found = {one: _subnet_of(wires[one], address) for one, address in addresses.items()}
        return {server: subnet for server, subnet in found.items() if subnet}

    async def strange(self, ports: Sequence[Described]) -> dict[str, str]:
        """Return which ports are another project's, which nobody may change, by id, and why.

        A Node names its server itself, and credentials with the role `admin` find that of any
        project.

        Raises:
            CloudError: No token is issued.
        """
        project = await self._api.project()
        found = {id_of(port): foreign_project(port, project) for port in ports}
        listed = {
            id_of(port)
            for port in ports
            if self._tenants.lists(EVERY_NAMESPACE, (id_of(port), str(port.get("project_id"))))
        }
        return {id_: why for id_, why in found.items() if why and id_ not in listed}

    async def unlike(self, ports: Sequence[Described]) -> dict[str, str | CloudError]:
        """Return which ports are those of servers that a Node names by mistake, or by a lie.

        Only where one has another name than its Node, or Nova tells none, the answer depends on
        other nodes' servers: on all, or on some by chance, whoever is asked about. Of a port about
        which nobody can tell it has an error. A Node may have gone since the ports were read.

        Raises:
            CloudError: Nova gives no usable answer.
        """
        named = nodes_by_server(self._api.context.listers["nodes"].all())
        if not named:
            return {}
        asked = {
            server
            for port in ports
            if not self._tenants.lists(
                EVERY_NAMESPACE, (server := str(port["device_id"]), id_of(port))
            )
        }
        found = await self.by_id(asked)
        if all(
            isinstance(one, Mapping) and is_called(one, named.get(id_, ()))
            for id_, one in found.items()
        ):
            return {}
        some = set(some_of(sorted(named), MOST_COMPARED))
        others = {**await self.by_id(some - asked), **{id_: found[id_] for id_ in some & asked}}
        there = {id_: one for id_, one in others.items() if one is not None}
        why = misnamed(found, there, named)
        of = {id_of(port): str(port["device_id"]) for port in ports}
        return {port: why[id_] for port, id_ in of.items() if id_ in asked and id_ in why}

    async def _networks(self, ids: Collection[str]) -> dict[str, str]:
        found = await self._listed("network_list", "networks", "id", ids, ("id", "name"))
        return {id_of(one): str(one["name"]) for one in found}

    async def _listed(
        self, operation: str, what: str, by: str, ids: Collection[str], fields: tuple[str, ...]
    ) -> list[Described]:
        """Read Neutron's objects with one of these ids."""

        async def part(of: list[str]) -> list[Described]:
            parameters = {by: of, "fields": fields}
            return await self._api.listed("neutron", operation, what, what, parameters)

        parts = await asyncio.gather(*(self._slot(part, of) for of in in_parts(ids, MOST_IDS)))
        return [one for found in parts for one in found]


def _subnet_of(wires: Wires, address: str) -> str:
    """Return the subnet in which a server has an address; "" if it has it in none."""
    ports = (*wires.ports, *(port for _, port in wires.trunked))
    fixed_ips = (fixed for port in ports for fixed in port.get("fixed_ips") or ())
    same = (str(one["subnet_id"]) for one in fixed_ips if str(one["ip_address"]) == address)
    return next(same, "")
