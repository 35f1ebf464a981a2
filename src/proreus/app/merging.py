"""Read a cloud-config from a file and a Secret at once: keys of the Secret override the file."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from proreus.app.options import Options
from proreus.cloudprovider import config_text
from proreus.cloudprovider.config_merge import merge_configs

if TYPE_CHECKING:
    from proreus.app.reload import Origin


def source_of(options: Options) -> str:
    """Return where the cloud-config in a Secret is from, for messages."""
    secret = options.cloud_config_secret
    return f"{secret} over {options.cloud_config}" if options.merge_cloud_config else secret


def with_file(options: Options, text: str) -> str:
    """Return the text of the Secret, merged with that of the file where the flags say so.

    Raises:
        ConfigError: One of them cannot be read.
    """
    if not options.merge_cloud_config:
        return text
    return merge_configs(
        config_text(options.cloud_config), text,
        file_source=options.cloud_config, secret_source=options.cloud_config_secret,
    )  # fmt: skip


class MergedOrigin:
    """A file and a Secret as one source, used within `async with`."""

    def __init__(self, options: Options, secret: "Origin") -> None:
        """Follow the file of `options` and the Secret."""
        self.name = source_of(options)
        self._options = options
        self._secret = secret

    async def __aenter__(self) -> Self:
        await self._secret.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._secret.__aexit__(kind, error, trace)

    def read(self) -> str:
        """Return the merged text as it is now.

        Raises:
            ConfigError: One of the two cannot be read.
        """
        return with_file(self._options, self._secret.read())

    async def changed(self, seconds: float) -> None:
        """Wait until the Secret may have changed; the file is read anew after that, too."""
        await self._secret.changed(seconds)
