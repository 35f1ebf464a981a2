"""Read a cloud-config from a file and a Secret at once: keys of the Secret override the file."""

from proreus.app.options import Options
from proreus.cloudprovider import config_text
from proreus.cloudprovider.config_merge import merge_configs


def source_of(options: Options) -> str:
    """Return where the cloud-config in a Secret is from, for messages."""
    secret = options.cloud_config_secret
    return f"{secret} over {options.cloud_config}" if options.merge_cloud_config else secret


def with_file(options: Options, text: str) -> str:
    """Return the text of the Secret, merged with that of the file where the flags say so.

    Raises:
        ConfigError: The Secret's text or the file cannot be read.
    """
    if not options.merge_cloud_config:
        return text
    return merge_configs(
        config_text(options.cloud_config), text,
        file_source=options.cloud_config, secret_source=options.cloud_config_secret,
    )  # fmt: skip
