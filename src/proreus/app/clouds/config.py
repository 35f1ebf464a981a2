"""Read which clouds the flags name, and make their providers from files, or one file of all.

`--cloud-provider` is the name of one provider; or several, separated by commas, each with a name of
its own where two are of one kind (`east=openstack,west=openstack`). Then `--cloud-config` is
NAME=FILE for each cloud that has one, or one YAML file with each cloud's under its name: as YAML,
or in the provider's own dialect as a text.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import yaml

from proreus.app.clouds.plan import Rules
from proreus.app.clouds.several import Several
from proreus.app.options import Options
from proreus.app.reload import DerivedOrigin, FileOrigin, Origin
from proreus.cloudprovider import (
    CloudProvider,
    ConfigError,
    InitCloudProvider,
    config_text,
    load,
    with_config,
)
from proreus.controllers.node_ipam.plan import Mode
from proreus.controllers.service.intake import UNDECIDED

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Named(msgspec.Struct, frozen=True):
    """A cloud: its name, "" for the only one, and the name of its provider."""

    name: str
    provider: str


def named(text: str) -> tuple[Named, ...]:
    """Return the clouds that the value of `--cloud-provider` names, right or wrong."""
    entries = [entry.strip().rpartition("=") for entry in text.split(",")]
    if len(entries) == 1 and not entries[0][1]:
        return (Named("", text),)
    return tuple(
        Named(name if equals else provider, provider) for name, equals, provider in entries
    )


def providers(text: str) -> tuple[type[CloudProvider], ...]:
    """Import the providers that the value of `--cloud-provider` names.

    Raises:
        ConfigError: A provider is not known or cannot be imported.
    """
    found: list[type[CloudProvider]] = []
    wrong: list[str] = []
    for one in named(text):
        try:
            found.append(load(one.provider))
        except ConfigError as exc:
            wrong.extend(exc.problems)
    if wrong:
        raise ConfigError(tuple(dict.fromkeys(wrong)))
    return tuple(found)


def needs_of(text: str) -> frozenset[str]:
    """Return the caches that the providers in `--cloud-provider` need.

    Raises:
        ConfigError: A provider is not known or cannot be imported.
    """
    return frozenset[str]().union(*(one.needs for one in providers(text)))


def rights_of(options: Options) -> frozenset[str]:
    """Return the caches that the providers need with their cloud-config, or may need without it.

    Raises:
        ConfigError: A provider is not known or cannot be imported.
    """
    found = providers(options.cloud_provider)
    if options.cloud_config and not options.cloud_config_secret:
        with suppress(ConfigError):  # it may be on another machine
            return configured(options).needs
    return frozenset[str]().union(*(one.needs | one.may_need for one in found))


def problems(options: Options) -> tuple[str, ...]:
    """Report wrong flags that name clouds. Pure."""
    clouds = named(options.cloud_provider)
    if not clouds[0].name and len(clouds) == 1:
        lone = "--load-balancer-cloud: needs several clouds in --cloud-provider"
        return (lone,) if options.load_balancer_cloud else ()
    return (*_wrong_names([one.name for one in clouds]), *_wrong_uses(options))


def _wrong_names(names: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if not _NAME.fullmatch(name):
            yield (
                f"--cloud-provider: {name!r} is not a name of a cloud: it must be of lower-case "
                "letters, digits and -, as in east=openstack"
            )
        elif name == UNDECIDED:
            yield f"--cloud-provider: {name!r} cannot be the name of a cloud: choose another"
        elif names.count(name) > 1:
            yield (
                f"--cloud-provider: {names.count(name)} clouds have the name {name!r}: give each "
                f"its own, as in east={name},west={name}"
            )


def _wrong_uses(options: Options) -> Iterator[str]:
    """Report wrong flags that use the clouds' names."""
    names = [one.name for one in named(options.cloud_provider)]
    known = ", ".join(names)
    if options.load_balancer_cloud and options.load_balancer_cloud not in names:
        wrong = options.load_balancer_cloud
        yield f"--load-balancer-cloud: {wrong!r} is none of the clouds: {known}"
    for entry in options.load_balancer_classes:
        cloud, equals, _ = entry.partition("=")
        if equals and cloud not in names:
            yield f"--load-balancer-classes: {cloud!r} is none of the clouds: {known}"
    if isinstance(files := _files(options), str):
        yield files
    if options.allocate_node_cidrs and options.cidr_allocator_type == Mode.FROM_CLUSTER:
        yield (
            f"--cidr-allocator-type: {Mode.FROM_CLUSTER} is for one cloud: with several "
            f"{Mode.FROM_CLOUD} takes each node's CIDRs from its cloud, {Mode.RANGE} gives all"
        )


def rules_of(options: Options) -> Rules:
    """Return which cloud makes load balancers for which Services. Pure."""
    names = [one.name for one in named(options.cloud_provider)]
    default = options.load_balancer_cloud or names[0]
    classes = {}
    for entry in options.load_balancer_classes:
        cloud, equals, class_ = entry.partition("=")
        classes[class_ if equals else entry] = cloud if equals else default
    return Rules(names, default, classes, options.classless_load_balancers)


def _files(options: Options) -> Mapping[str, str] | str | None:
    """Return each cloud's file, None if there is one file of all; or the problem as a text."""
    entries = [entry.strip() for entry in options.cloud_config.split(",")]
    names = [one.name for one in named(options.cloud_provider)]
    pairs = [entry.partition("=") for entry in entries]
    if not options.cloud_config:
        return {}
    if len(pairs) == 1 and pairs[0][0] not in names:
        return None
    for name, equals, path in pairs:
        if not equals or not path or name not in names:
            return (
                f"--cloud-config: {name + equals + path!r} is not NAME=FILE with one of the "
                f"clouds {', '.join(names)}"
            )
    if len({name for name, _, _ in pairs}) < len(pairs):
        return "--cloud-config: a cloud has two files; give it one"
    return {name: path for name, _, path in pairs}


def configured(options: Options) -> CloudProvider:
    """Make the provider, or that of several, from the files of the flags. No I/O with a cloud.

    Raises:
        ConfigError: A provider or its config is wrong; names every problem.
    """
    clouds = named(options.cloud_provider)
    if not clouds[0].name:
        return InitCloudProvider(options.cloud_provider, options.cloud_config)
    files = _files(options)
    if isinstance(files, str):
        raise ConfigError((files,))
    if files is None:
        return from_text(options, config_text(options.cloud_config), source=options.cloud_config)
    return _several(clouds, lambda name: (config_text(files.get(name, "")), files.get(name, "")))


def from_text(options: Options, text: str, *, source: str) -> CloudProvider:
    """Make the provider, or that of several, from one text.

    Raises:
        ConfigError: A provider or its config is wrong; names every problem.
    """
    clouds = named(options.cloud_provider)
    if not clouds[0].name:
        return with_config(options.cloud_provider, text, source=source)
    found = sections(text, [one.name for one in clouds], source)
    return _several(
        clouds, lambda name: (found.get(name, ""), _place(source, name) if name in found else "")
    )


def _several(clouds: Sequence[Named], read: Callable[[str], tuple[str, str]]) -> Several:
    members: dict[str, CloudProvider] = {}
    wrong: list[str] = []
    for one in clouds:
        try:
            text, source = read(one.name)
            members[one.name] = with_config(one.provider, text, source=source)
        except ConfigError as exc:
            wrong.extend(f"the cloud {one.name}: {problem}" for problem in exc.problems)
    if wrong:
        raise ConfigError(tuple(wrong))
    return Several(members)


def sections(text: str, names: Sequence[str], source: str) -> Mapping[str, str]:
    """Return the texts of the clouds' configs in one YAML of all, by the clouds' names. Pure.

    Raises:
        ConfigError: The text is no such YAML, or has a section of another name.
    """
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ConfigError((f"{where}: is not YAML with a section for each cloud",)) from None
    known = ", ".join(names)
    if not isinstance(tree, Mapping):
        raise ConfigError((f"{source}: must be YAML with a section for each of {known}",))
    wrong = [
        f"{source}: the section {name!r} is of none of the clouds: {known}"
        for name in tree
        if name not in names
    ]
    wrong += [
        f"{source}: the section {name} must hold the cloud's config, as YAML or as text"
        for name, section in tree.items()
        if not isinstance(section, Mapping | str | None)
    ]
    if wrong:
        raise ConfigError(tuple(wrong))
    return {
        str(name): section if isinstance(section, str) else json.dumps(section, default=str)
        for name, section in tree.items()
        if section is not None
    }


def _place(source: str, name: str) -> str:
    return f"{source}#{name}"


def origin_of_member(options: Options, name: str, whole: Origin | None) -> Origin | None:
    """Return where the config of one cloud is; None if there is none to follow.

    Args:
        options: The flags.
        name: The cloud's name; "" for the only one. `UNDECIDED` has no config.
        whole: The source of the config of all clouds, by the same flags.
    """
    if name == UNDECIDED:
        return None
    files = None if options.cloud_config_secret else _files(options)
    if not name or whole is None:
        return whole
    if isinstance(files, Mapping):
        return FileOrigin(files.get(name, ""))
    names = [one.name for one in named(options.cloud_provider)]
    return DerivedOrigin(
        _place(whole.name, name),
        whole,
        lambda text: sections(text, names, whole.name).get(name, ""),
    )
