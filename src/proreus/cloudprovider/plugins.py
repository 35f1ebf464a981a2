"""Find providers by name, and import only the one that is needed.

A provider is a subclass of `CloudProvider`, announced by its package as an entry point:

    [project.entry-points."proreus.cloudproviders"]
    mycloud = "mycloud_ccm:MyCloud"

An alias (`CloudProvider.names`) needs an entry point of its own. `RegisterCloudProvider` does the
same within a process, and keeps the name of the Go function.
"""

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.provider import CloudProvider
from proreus.runtime import klog

log = klog.logger(__name__)

GROUP = "proreus.cloudproviders"

_registered: dict[str, type[CloudProvider]] = {}


def RegisterCloudProvider(name: str, factory: type[CloudProvider]) -> None:  # noqa: N802 - Go's name
    """Make a provider known in this process; an entry point of the same name is not used then.

    Raises:
        ValueError: The name is taken by another provider.
    """
    if _registered.setdefault(name, factory) is not factory:
        raise ValueError(f"the cloud provider {name!r} is registered already")


def available() -> tuple[str, ...]:
    """Return the names of all known providers without importing them."""
    return tuple(sorted({*_registered, *(point.name for point in entry_points(group=GROUP))}))


def load(name: str) -> type[CloudProvider]:
    """Import the provider called `name`.

    Raises:
        ConfigError: There is no such provider, there are several, or it cannot be imported.
    """
    if name in _registered:
        return _registered[name]
    points = entry_points(group=GROUP, name=name)
    targets = {point.value for point in points}
    if not targets:
        known = ", ".join(available()) or "none"
        raise ConfigError((f"--cloud-provider: {name!r} is unknown; installed are {known}",))
    if len(targets) > 1:
        all_of_them = " and ".join(sorted(targets))
        raise ConfigError((f"--cloud-provider: {name!r} is claimed by {all_of_them}: remove one",))
    return _import(next(iter(points)))


def _import(point: EntryPoint) -> type[CloudProvider]:
    try:
        found = point.load()
    except ImportError as error:
        raise _not_importable(point.name, error) from error
    except AttributeError as error:
        raise ConfigError((f"--cloud-provider: {point.value} does not exist: {error}",)) from error
    if not (isinstance(found, type) and issubclass(found, CloudProvider)):
        raise ConfigError((f"--cloud-provider: {point.value} is not a subclass of CloudProvider",))
    if point.name not in {found.name, *found.names}:
        problem = f"{point.value} has another `name` than its entry point, {point.name!r}"
        raise ConfigError((f"--cloud-provider: {problem}",))
    return found


def _not_importable(name: str, error: ImportError) -> ConfigError:
    missing = f"{error.name!r} is missing" if error.name else str(error)
    packages = (point.dist.name for point in entry_points(group=GROUP, name=name) if point.dist)
    problem = (
        f"--cloud-provider: {name!r} cannot be imported, {missing}: "
        f'pip install "{next(packages, "its package")}[{name}]"'
    )
    return ConfigError((problem,))


def InitCloudProvider(name: str, config_file: str) -> CloudProvider:  # noqa: N802 - Go's name
    """Load the provider and give it its cloud-config. No I/O with the cloud.

    Args:
        name: The name of the provider, one of `available()`.
        config_file: Path of the cloud-config, or "" for none.

    Raises:
        ConfigError: The provider or its config is wrong; names every problem.
    """
    return with_config(name, config_text(config_file), source=config_file)


def with_config(name: str, text: str, *, source: str) -> CloudProvider:
    """Load the provider and give it the text of its cloud-config. No I/O with the cloud.

    Args:
        name: The name of the provider, one of `available()`.
        text: The cloud-config.
        source: The source of the text, for messages; its suffix may tell the format. "" if there is
            none.

    Raises:
        ConfigError: The provider or its config is wrong; names every problem.
    """
    factory = load(name)
    config = None
    if factory.config_type is not None:
        config = read(
            text,
            factory.config_type,
            source=source,
            variables=factory.config_environment,
            warn=lambda problem: klog.warning(
                log, "A setting in the cloud-config is ignored", problem=problem
            ),
        )
    elif source:
        klog.warning(
            log,
            "The cloud provider takes no cloud-config; that of --cloud-config is ignored",
            provider=name,
        )
    try:
        return factory(config)
    except ImportError as error:
        raise _not_importable(name, error) from error


def config_text(config_file: str) -> str:
    """Read the file of `--cloud-config`; return "" if none is given.

    Raises:
        ConfigError: The file cannot be read.
    """
    if not config_file:
        return ""
    try:
        return Path(config_file).read_text(encoding="utf-8")
    except OSError as error:
        problem = f"--cloud-config: cannot read {config_file}: {error.strerror}"
        raise ConfigError((problem,)) from error
    except UnicodeDecodeError as error:
        raise ConfigError((f"--cloud-config: {config_file} is not UTF-8",)) from error
