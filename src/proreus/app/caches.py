"""Give a provider the objects that it declares to need (`CloudProvider.needs`)."""

from collections.abc import Iterable, Mapping
from typing import Final

from proreus.app.board import NEED
from proreus.cloudprovider import ConfigError, Lister
from proreus.kube.client import Client
from proreus.kube.errors import Forbidden, NotFound
from proreus.kube.objects import ConfigMap, KubeObject
from proreus.kube.requests import CONFIG_MAPS
from proreus.runtime import klog

log = klog.logger(__name__)

CONFIG_MAP: Final = "config_maps/"
"""The prefix of the name of a need for one ConfigMap of kube-system."""
NAMESPACE: Final = "kube-system"


class OneConfigMap:
    """A lister of one ConfigMap as it was when it was read, or of none."""

    def __init__(self, found: ConfigMap | None) -> None:
        """Keep the ConfigMap; None if there is none."""
        self._found = {} if found is None else {f"{NAMESPACE}/{found.metadata.name}": found}

    def get(self, key: str) -> ConfigMap | None:
        """Return the object `namespace/name`, or None."""
        return self._found.get(key)

    def all(self) -> Iterable[ConfigMap]:
        """Return every object."""
        return self._found.values()

    def by(self, index: str, value: str) -> Iterable[ConfigMap]:
        """Return nothing: there are no indexes."""
        del index, value
        return ()


def config_map_names(needs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the ConfigMaps that a provider needs."""
    return tuple(
        sorted(one.removeprefix(CONFIG_MAP) for one in needs if one.startswith(CONFIG_MAP))
    )


async def config_maps(client: Client, needs: Iterable[str]) -> dict[str, Lister[KubeObject]]:
    """Read the ConfigMaps that a provider needs, by the names of its needs.

    One that is not there, or may not be read, is none: the provider does without.

    Raises:
        KubeError: The API server does not answer.
    """
    found: dict[str, Lister[KubeObject]] = {}
    for name in config_map_names(needs):
        try:
            read: ConfigMap | None = await client.get(CONFIG_MAPS, name, NAMESPACE)
        except NotFound:
            read = None
        except Forbidden as exc:
            place = f"{NAMESPACE}/{name}"
            klog.warning(
                log,
                "Reading a ConfigMap is forbidden; the provider goes without it",
                config_map=place,
                err=str(exc),
            )
            read = None
        found[f"{CONFIG_MAP}{name}"] = OneConfigMap(read)
    return found


def needed(
    name: str, needs: frozenset[str], offered: Mapping[str, Lister[KubeObject] | None]
) -> Mapping[str, Lister[KubeObject]]:
    """Return those of the `offered` caches that a provider needs.

    Raises:
        ConfigError: It needs something that there is none of.
    """
    unknown = sorted(needs - offered.keys() - {NEED})
    if unknown:
        raise ConfigError((f"the provider {name} needs {', '.join(unknown)}: no such cache",))
    return {one: lister for one, lister in offered.items() if lister is not None and one in needs}
