"""The flags of the official manager of Azure that its manifests give, and what they mean. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from proreus.cloudprovider.config import ConfigSection, read
from proreus.cloudprovider.config_merge import ConfigSource
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.flags import ProviderFlag, boolean

_NAME: Final = "cloud-config-secret-name"
_NAMESPACE: Final = "cloud-config-secret-namespace"
_KEY: Final = "cloud-config-key"
_DEFAULTS: Final = {_NAMESPACE: "kube-system", _KEY: "cloud-config"}


def _part(text: str) -> str:
    if "/" in text:
        raise ValueError("must be a name, without a slash")
    return text


FLAGS: Final[Mapping[str, ProviderFlag]] = MappingProxyType(
    {
        _NAME: ProviderFlag(
            "Secret with the cloud-config, read where --cloud-config names no file or its"
            " cloudConfigType is secret or merge.",
            _part,
        ),
        _NAMESPACE: ProviderFlag("Namespace of that Secret; kube-system by default.", _part),
        _KEY: ProviderFlag("Key in that Secret; cloud-config by default.", _part),
        "enable-dynamic-reloading": ProviderFlag(
            "Has no effect: a changed cloud-config is always taken over.", boolean, bare="true"
        ),
    }
)
"""The flags by their names; officially, too, a file goes before the Secret."""


class _Kind(ConfigSection, frozen=True):
    """The one key of the file that tells which source counts."""

    ignore_unknown: ClassVar[bool] = True

    cloud_config_type: str = ""


def config_secret(given: Mapping[str, Any]) -> str:
    """Return the Secret of the cloud-config as namespace/name/key; "" if no flag names one."""
    name = given.get(_NAME, "")
    namespace, key = (given.get(flag) or default for flag, default in _DEFAULTS.items())
    return f"{namespace}/{name}/{key}" if name else ""


def config_source(text: str) -> ConfigSource:
    """Return which source counts by a file's `cloudConfigType`; the file if it names none."""
    try:
        kind = read(text, _Kind, source="").cloud_config_type.lower()
    except ConfigError:
        return ConfigSource.FILE
    return ConfigSource(kind) if kind in set(ConfigSource) else ConfigSource.FILE
