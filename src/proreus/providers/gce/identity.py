"""Find the cluster's id, which is in the names of parts that its Services share."""

from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.names import digest_of
from proreus.kube.objects import ConfigMap

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

CONFIG_MAP: Final = "kube-system/ingress-uid"
"""Where the official manager keeps the id; the ingress controller of GCE reads it, too."""
NEED: Final = "config_maps/ingress-uid"
LENGTH: Final = 16

_KEYS: Final = ("provider-uid", "uid")


class ClusterId:
    """The cluster's id: by the ConfigMap, else by the cloud-config, else one of our own.

    Our own follows from the uid of the cluster, so that it is always the same.
    """

    def __init__(self, context: "Context", configured: str) -> None:
        """Keep the ConfigMap's cache and the configured id."""
        self._maps = context.listers.get(NEED)
        self._fallback = configured or digest_of((context.cluster.uid,), length=LENGTH)

    def value(self) -> str:
        """Return the id. No I/O."""
        found = self._maps.get(CONFIG_MAP) if self._maps is not None else None
        if isinstance(found, ConfigMap):
            for key in _KEYS:
                if value := found.data.get(key, ""):
                    return value
        return self._fallback
