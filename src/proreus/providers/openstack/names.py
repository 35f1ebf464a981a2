"""Read which server a Node is: by provider ids and server names. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id, random_system_uuids
from proreus.kube.objects import KubeObject, Node
from proreus.providers.nova.machines import Described
from proreus.providers.nova.names import UUID, Target

SCHEME = "openstack://"
_PROVIDER_ID = re.compile(rf"openstack://(?P<region>[^/]*)/(?P<id>{UUID.pattern})")
_REGION_LABEL = "topology.kubernetes.io/region"


def provider_id(id_: str, region: str = "") -> str:
    """Return the provider id of a server; `region` only where ids are regional."""
    return f"{SCHEME}{region}/{id_}"


def parsed(text: str) -> tuple[str, str] | None:
    """Return the region and the server in a provider id; None if it is not of OpenStack.

    The region is "" if it names none. A bare id is one, too: Nodes of old clusters have it. Ids are
    returned as OpenStack writes them, in small letters: a kubelet may have its own in capitals, and
    Nova need not find that.
    """
    if "://" not in text:
        return ("", text.lower()) if UUID.fullmatch(text) else None
    match = _PROVIDER_ID.fullmatch(text)
    return (match["region"], match["id"].lower()) if match else None


def machine_of(text: str) -> str | None:
    """Return the server in a provider id of any region; None if it is not of OpenStack."""
    found = parsed(text)
    return found[1] if found is not None else None


def nodes_by_server(nodes: Iterable[KubeObject]) -> dict[str, frozenset[str]]:
    """Return the names of the Nodes that name a server, by the server's id."""
    found: dict[str, frozenset[str]] = {}
    for one in nodes:
        if isinstance(one, Node) and (id_ := parsed(one.spec.provider_id)) is not None:
            found[id_[1]] = found.get(id_[1], frozenset()) | {one.metadata.name}
    return found


def misnamed(
    servers: Mapping[str, Described | CloudError | None],
    others: Mapping[str, Described | CloudError],
    nodes: Mapping[str, Collection[str]],
) -> dict[str, str | CloudError]:
    """Return why servers are taken for none of the cluster's, by id, though Nodes name them.

    A kubelet can name any server of the project, but it chooses neither its Node's name nor that of
    a server, and both are one in most clusters. Where half of the servers have other names than
    their Nodes, that says nothing. What Nova does not tell of may have any name.

    Args:
        servers: The servers by id, as Nova describes them; None for what is no server, an error
            where it does not tell.
        others: Those of all Nodes, or of some by chance, without those that are none.
        nodes: The names of the Nodes that name them, by the servers' ids.
    """
    told = (_misnamed(id_, server, nodes.get(id_, ())) for id_, server in others.items())
    if 2 * sum(bool(why) and not isinstance(why, CloudError) for why in told) >= len(others):
        return {}
    return {
        id_: why
        for id_, server in servers.items()
        if (why := _misnamed(id_, server, nodes.get(id_, ())))
    }


def _misnamed(
    id_: str, server: Described | CloudError | None, nodes: Collection[str]
) -> str | CloudError:
    if isinstance(server, CloudError):
        return CloudError(f"Nova does not tell what server {id_} is called: {server}")
    if server is not None and is_called(server, nodes):
        return ""
    known = f"server {id_} is " + (f"called {server.get('name')}" if server else "unknown to Nova")
    whose = f"its Node {', '.join(sorted(nodes))}" if nodes else "no Node names it by now"
    return f"{known}, and {whose}, while most servers have the name of their Node"


def is_called(server: Described, nodes: Iterable[str]) -> bool:
    """Tell whether a server has the name of one of these Nodes, with another domain or without."""
    names = (server.get("name"), (server.get("metadata") or {}).get("hostname"))
    known = {str(name).lower().partition(".")[0] for name in names if name}
    return any(node.lower().partition(".")[0] in known for node in nodes)


def foreign_project(described: Described, project: str) -> str:
    """Return why no Service may name an object of another project than this; "" if it is not one.

    Credentials with the role `admin` are shown the objects of all projects (Neutron's and Octavia's
    API references), and may change them.
    """
    found = str(described.get("project_id") or described.get("tenant_id") or "")
    if found in {"", project} or not project:
        return ""
    return f"it belongs to the project {found}, and the credentials are of {project}"


def servers_of(nodes: Iterable[KubeObject], region: str) -> frozenset[str]:
    """Return the servers that Nodes name: those of the region, or else those of any region."""
    ids = (parsed(one.spec.provider_id) for one in nodes if isinstance(one, Node))
    found = {id_ for id_ in ids if id_ is not None}
    here = frozenset(server for named, server in found if named in {"", region})
    return here or frozenset(server for _, server in found)


def target(node: Node, region: str) -> Target:
    """Return the key by which a Node's server is looked up: the provider id, or else the name."""
    id_ = node.spec.provider_id
    if not id_:
        return Target(name=node.metadata.name, uuids=random_system_uuids(node))
    found = parsed(id_)
    if found is None:
        example = "openstack:///2e8c1f0a-0000-4000-8000-000000000000"
        return Target(problem=foreign_id(id_, "OpenStack", example))
    if found[0] and found[0] != region:
        return Target(
            problem=f"spec.providerID {id_!r} names another region than {region!r}, the one of the"
            " cloud-config: the manager of that region takes care of this node"
        )
    return Target(id=found[1], uuids=random_system_uuids(node))


def ownership(node: Node, region: str) -> Ownership:
    """Tell whether a Node's server is in this region: by its provider id, or else its label.

    Args:
        node: The Node.
        region: The region of this cloud-config; "" where the cloud has one only.
    """
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    found = parsed(node.spec.provider_id)
    if found is None:
        return Ownership.NO
    named = found[0] or node.metadata.labels.get(_REGION_LABEL, "")
    if named:
        return Ownership.YES if named == region else Ownership.NO
    # Where there are several regions, nothing says that it is this one.
    return Ownership.UNKNOWN if region else Ownership.YES
