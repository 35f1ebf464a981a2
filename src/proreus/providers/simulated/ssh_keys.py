"""The capability `SSHKeys` of the provider `simulated`."""

from proreus.providers.simulated.api import Api


class SimulatedSSHKeys:
    """The capability `SSHKeys` of the provider `simulated`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of the cloud."""
        self._api = api

    async def add_to_all_instances(self, user: str, public_key: str) -> None:
        """Add a key to the instances that there are now, those that do not have it.

        Raises:
            CloudError: The cloud refuses it.
        """
        await self._api.add_ssh_key(user, public_key)
