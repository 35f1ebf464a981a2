"""Read clouds.yaml with openstacksdk, as every client of OpenStack does.

The search for the file, secure.yaml and profiles of vendors are its own. It takes longer to import
than all else together, so this module is imported only where clouds.yaml is used.
"""

import logging
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from openstack.config import OpenStackConfig as Clouds
from openstack.exceptions import ConfigException
from yaml import MarkedYAMLError

from proreus.cloudprovider.errors import ConfigError
from proreus.kube.messages import yaml_problem
from proreus.providers.openstack.config import Global

_METHODS = frozenset({"password", "token", "v3password", "v3token", "v3applicationcredential", ""})


_FORM: Final = "clouds: {NAME: {auth: {auth_url: ..., username: ..., password: ...}}}"


class _Skipped(logging.Filter):
    """A filter of openstacksdk's log, which says why a file was passed over.

    The text may quote a password, so it is kept out of the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep back what is said of an exception, and note it."""
        given = record.args if isinstance(record.args, tuple) else ()
        for error in (one for one in given if isinstance(one, Exception)):
            problem = error.problem if isinstance(error, MarkedYAMLError) else None
            self.problems.append(f"{given[0]}: is no YAML: {yaml_problem(problem)}")
            return False
        return True


def cloud_of(settings: Global) -> Mapping[str, Any]:
    """Return the settings in clouds.yaml of the cloud that the cloud-config names.

    Raises:
        ConfigError: The file cannot be read, does not contain the cloud, has another form, or wants
            another sort of login. Nothing of the file's values is in the text.
    """
    skipped, log = _Skipped(), logging.getLogger("openstack.config")
    log.addFilter(skipped)
    try:
        if settings.clouds_file:
            Path(settings.clouds_file).read_bytes()  # openstacksdk passes over what it cannot read
        found = _read(settings, skipped)
    except ConfigException as error:
        # After a bracket it shows what is in the file.
        shown = re.split(r"[\[{]", str(error))[0].strip()
        raise ConfigError((f"clouds.yaml: {shown}",)) from None
    except OSError as error:
        raise ConfigError((f"[Global] clouds-file: cannot be read: {error.strerror}",)) from error
    except (AttributeError, KeyError, TypeError, ValueError):
        problem = f"clouds.yaml: has another form than {_FORM}: compare the cloud {settings.cloud}"
        raise ConfigError((problem,)) from None
    finally:
        log.removeFilter(skipped)
    method = found.get("auth_type") or ""
    if not (isinstance(method, str) and method in _METHODS):
        problem = (
            f"clouds.yaml: auth_type {method!r} is not supported: use password, token"
            " or v3applicationcredential"
        )
        raise ConfigError((problem,))
    return found


def _read(settings: Global, skipped: _Skipped) -> Mapping[str, Any]:
    """Read the cloud as openstacksdk does; raise its errors, and a ConfigError of our own."""
    files = [settings.clouds_file] if settings.clouds_file else None
    clouds = Clouds(config_files=files, load_envvars=files is None)
    if skipped.problems:
        raise ConfigError(tuple(skipped.problems))
    # Not what it would default to: only what is said about this very cloud.
    if settings.cloud not in clouds.get_cloud_names():
        known = ", ".join(sorted(clouds.get_cloud_names())) or "none"
        raise ConfigError(
            (f"[Global] cloud: {settings.cloud!r} is not in clouds.yaml, which has {known}",)
        )
    with warnings.catch_warnings():
        # About databases of metrics, which nobody asked for.
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        found: Mapping[str, Any] = clouds.get_one(cloud=settings.cloud, validate=False).config
    if skipped.problems:  # those of vendors' profiles
        raise ConfigError(tuple(skipped.problems))
    return found
