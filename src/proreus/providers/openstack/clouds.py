"""Read clouds.yaml with openstacksdk, as every client of OpenStack does.

The search for the file, secure.yaml and profiles of vendors are its own. It takes longer to import
than all else together, so this module is imported only where clouds.yaml is used.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from openstack.config import OpenStackConfig as Clouds
from openstack.exceptions import ConfigException

from proreus.cloudprovider.errors import ConfigError
from proreus.providers.openstack.config import Global

_METHODS = frozenset(
    {"password", "token", "v3password", "v3token", "v3applicationcredential", "", None}
)


def cloud_of(settings: Global) -> Mapping[str, Any]:
    """Return the settings in clouds.yaml of the cloud that the cloud-config names.

    Raises:
        ConfigError: The file cannot be read, does not contain the cloud, or wants another sort of
            login.
    """
    files = [settings.clouds_file] if settings.clouds_file else None
    try:
        clouds = Clouds(config_files=files, load_envvars=files is None)
        # Not what it would default to: only what is said about this very cloud.
        if settings.cloud not in clouds.get_cloud_names():
            known = ", ".join(sorted(clouds.get_cloud_names())) or "none"
            raise ConfigError(
                (f"[Global] cloud: {settings.cloud!r} is not in clouds.yaml, which has {known}",)
            )
        with warnings.catch_warnings():
            # About databases of metrics, which nobody asked for.
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            region = clouds.get_one(cloud=settings.cloud, validate=False)
    except ConfigException as error:
        raise ConfigError((f"clouds.yaml: {error}",)) from error
    except OSError as error:
        raise ConfigError((f"[Global] clouds-file: cannot be read: {error.strerror}",)) from error
    found: Mapping[str, Any] = region.config
    if found.get("auth_type") not in _METHODS:
        problem = (
            f"clouds.yaml: auth_type {found['auth_type']!r} is not supported: use password, token"
            " or v3applicationcredential"
        )
        raise ConfigError((problem,))
    return found
