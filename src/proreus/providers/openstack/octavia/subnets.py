"""Choose the subnets of new floating IPs by their names or tags. Pure."""

import fnmatch
import re
from collections.abc import Iterable

from proreus.providers.nova.machines import Described
from proreus.providers.openstack.octavia.annotations import Floating


def matching(subnets: Iterable[Described], floating: Floating) -> list[Described]:
    """Return the subnets whose name or tags match, in the order of their names.

    A name is a pattern with `*` and `?`, or after `~` a regular expression; `!` in front of either
    means all others. Tags are separated by commas: all of them, or after `!` all but these.
    """
    ordered = sorted(subnets, key=lambda subnet: str(subnet.get("name", "")))
    return [subnet for subnet in ordered if _matches(subnet, floating)]


def _matches(subnet: Described, floating: Floating) -> bool:
    if floating.subnet:
        pattern = floating.subnet
        is_other = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        if pattern.startswith("~"):
            found = re.search(pattern[1:], str(subnet.get("name", ""))) is not None
        else:
            found = fnmatch.fnmatchcase(str(subnet.get("name", "")), pattern)
        return found != is_other
    tags = floating.subnet_tags
    desired = {tag.strip() for tag in tags.removeprefix("!").split(",") if tag.strip()}
    return (desired <= set(subnet.get("tags") or ())) != tags.startswith("!")
