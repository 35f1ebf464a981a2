"""Hold the providers of several clouds, none of them started, as one."""

from collections.abc import Mapping
from typing import Any

from proreus.cloudprovider import CloudProvider


class Several(CloudProvider):
    """The providers of several clouds, by the clouds' names.

    Attributes:
        members: Each cloud's provider; the manager starts each by itself.
    """

    def __init__(self, members: Mapping[str, CloudProvider]) -> None:
        """Keep the providers of all clouds."""
        super().__init__(None)
        self.members = members
        self.name = ",".join(members)  # type: ignore[misc]  # of the class, but this is of any
        self.needs = frozenset[str]().union(*(one.needs for one in members.values()))
        self.webhooks = {
            name: webhook
            for one in reversed(tuple(members.values()))  # the first of a name counts
            for name, webhook in one.webhooks.items()
        }
        self.watched_files = tuple(path for one in members.values() for path in one.watched_files)


def members_of(provider: CloudProvider) -> Mapping[str, CloudProvider]:
    """Return the providers by the names of their clouds; the only one's name is ""."""
    return provider.members if isinstance(provider, Several) else {"": provider}


def names_of(provider: CloudProvider) -> tuple[str, ...]:
    """Return all names that select a provider; its only cloud is called by one of them."""
    return (provider.name, *provider.names)


def flags_of(provider: CloudProvider, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values given for the provider's own flags, by their names."""
    return {name: given[name] for name in provider.flags if name in given}
