"""Read a command line as manifests have it, those of the official managers included.

An official image's entrypoint is its program, or `go-runner`, which runs the program that its
arguments name. So the arguments of a manifest are flags; a program's path, then flags; or
go-runner's own flags, a program's path, then flags. They are the same here, whatever the program.
https://github.com/kubernetes/release/tree/master/images/build/go-runner
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from proreus.app import config_file, flags
from proreus.app.clouds.config import providers
from proreus.app.flags import Flag
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider, ConfigError, ConfigSource, config_text

AnyOptions = TypeVar("AnyOptions", bound=Options)

_PROGRAM: Final = re.compile(r"(?:.*/)?(?:[a-z0-9]+-)?cloud-controller-manager")
_GO_RUNNER: Final = re.compile(r"--?(?:log-file|also-stdout|redirect-stderr)(?:=.*)?")


class CommandLine(msgspec.Struct, Generic[AnyOptions], frozen=True):
    """The flags' values that a command line gives, and its flags without effect.

    Attributes:
        options: The flags' values.
        removed: Names of klog's removed flags that were given; they have no effect.
        go_runner: Flags of go-runner that were given; they have no effect.
    """

    options: AnyOptions
    removed: tuple[str, ...]
    go_runner: tuple[str, ...]


def parse(
    options: type[AnyOptions], args: Sequence[str], program: str, description: str
) -> CommandLine[AnyOptions]:
    """Read the arguments, the file of `--config` and the flags of the provider.

    Args:
        options: The table of flags.
        args: The arguments, without the name that the process was started by.
        program: The name for `--help`.
        description: What the program does, for `--help`.

    Raises:
        FlagError: The command line is wrong; names every problem.
        SystemExit: `--help` was asked for.
    """
    go_runner, rest = without_program(args)
    try:
        parsed, removed = flags.parse(
            options, rest, program, description, file=config_file.read,
            of_provider=flags_of_provider,
        )  # fmt: skip
    except flags.FlagError as exc:
        if not isinstance(exc.readable, options):
            raise
        raise flags.FlagError(exc.problems, _with_secret(exc.readable)) from None
    return CommandLine(_with_secret(parsed), removed, go_runner)


def _with_secret(options: AnyOptions) -> AnyOptions:
    """Return the options with the Secret that the provider's own flags name, if it counts.

    Where there is a file, too, the file tells whether the Secret counts, alone or merged with it.
    """
    if options.cloud_config_secret or not options.provider_flags:
        return options
    chosen = providers(options.cloud_provider)
    if len(chosen) > 1:  # one Secret of a single cloud is not that of all
        return options
    place = chosen[0].config_secret(options.provider_flags)
    if not place:
        return options
    source = _source(chosen[0], options.cloud_config)
    if source is ConfigSource.FILE:
        return options
    is_merged = source is ConfigSource.MERGE
    return msgspec.structs.replace(
        options, cloud_config_secret=place, merge_cloud_config=is_merged,
        cloud_config=options.cloud_config if is_merged else "",
    )  # fmt: skip


def _source(provider: type[CloudProvider], file: str) -> ConfigSource:
    """Return which part of the cloud-config counts, where flags name a Secret and maybe a file."""
    if not file:
        return ConfigSource.SECRET
    try:
        text = config_text(file)
    except ConfigError:
        # `proreus roles` may run where the file is not; the manager itself refuses to start.
        return ConfigSource.MERGE
    return provider.config_source(text)


def without_program(args: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Drop go-runner's flags and the program's path; without a path keep everything."""
    for number, arg in enumerate(args):
        if _PROGRAM.fullmatch(arg):
            return tuple(args[:number]), tuple(args[number + 1 :])
        if not _GO_RUNNER.fullmatch(arg):
            break
    return (), tuple(args)


def flags_of_provider(name: str) -> Mapping[str, Flag] | None:
    """Return the own flags of the providers by field name; None if one cannot be imported."""
    try:
        chosen = providers(name)
    except ConfigError:
        return None
    return {
        flag.replace("-", "_"): Flag(
            provider.name, one.help, one.parse, repeated=one.repeated, bare=one.bare
        )
        for provider in chosen
        for flag, one in provider.flags.items()
    }
