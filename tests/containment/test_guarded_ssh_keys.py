"""A provider's SSH keys behind the guard: whatever it does is an error of that call."""

import pytest

from proreus.cloudprovider import CloudError, CloudProvider, Throttled
from proreus.containment.faults import Fault, Faults
from proreus.containment.guard import Guard
from proreus.containment.guarded import guarded
from proreus.kube.objects import KubeObject


class NoEvents:
    """Drops events."""

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None: ...


class Cloud(CloudProvider):
    """A cloud whose SSH keys raise what they were made with."""

    name = "raising"

    def __init__(self, raised: BaseException | None) -> None:
        super().__init__(None)
        self.ssh_keys = self
        self.given: list[tuple[str, str]] = []
        self._raised = raised

    async def add_to_all_instances(self, user: str, public_key: str) -> None:
        self.given.append((user, public_key))
        if self._raised is not None:
            raise self._raised


async def give(cloud: Cloud) -> None:
    found = guarded(cloud, Guard(Faults("raising", NoEvents()))).ssh_keys
    assert found is not None
    await found.add_to_all_instances("core", "ssh-ed25519 AAAA")


async def test_a_key_is_passed_on() -> None:
    cloud = Cloud(None)
    await give(cloud)
    assert cloud.given == [("core", "ssh-ed25519 AAAA")]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(Throttled("slowly"), Throttled), (SystemExit(3), Fault), (KeyError("x"), Fault)],
)
async def test_what_a_provider_raises_is_an_error_of_the_cloud(
    raised: BaseException, expected: type[CloudError]
) -> None:
    with pytest.raises(expected):
        await give(Cloud(raised))
