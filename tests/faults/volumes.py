"""Volumes of the simulated cloud that an administrator makes without labels, one for each node."""

from collections.abc import Iterable
from typing import Final

from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.kube.requests import PERSISTENT_VOLUMES
from proreus.testing.simulated import Instance, Volume

from ..apiserver.site import Site, all_of  # noqa: TID252 - pytest imports tests by path

DRIVER: Final = "csi.simulated.example"


async def make_for_each(site: Site, machines: Iterable[Instance]) -> None:
    """Make a volume in the zone of each machine; it has the machine's name."""
    wanted = list(machines)
    made = await site.cloud.admin.create_volumes([Volume(zones=(one.zone,)) for one in wanted])
    await all_of(
        site.client.create(PERSISTENT_VOLUMES, _body(machine.name, volume.id))
        for machine, volume in zip(wanted, made, strict=True)
    )


def _body(name: str, id_: str) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": id_},
        },
    }


async def all_labelled(site: Site, machines: Iterable[Instance]) -> bool:
    """Whether the volumes of these machines have their zones, as labels and as node affinity."""
    volumes = {one.metadata.name: one for one in (await site.client.list(PERSISTENT_VOLUMES)).items}
    return all(_is_labelled(volumes[machine.name], machine) for machine in machines)


def _is_labelled(volume: PersistentVolume, machine: Instance) -> bool:
    place = {LABEL_REGION: machine.region, LABEL_ZONE: machine.zone}
    rules = [{"key": key, "operator": "In", "values": [value]} for key, value in place.items()]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}
    return volume.metadata.labels == place and volume.spec.get("nodeAffinity") == affinity
