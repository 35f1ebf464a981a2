"""Each sort of credentials, at a real keystone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labs.openstack import seed
from labs.openstack.settings import PASSWORD, REGION, url
from proreus.cloudprovider.instances import Instance, NotFound

from .real import Real, project
from .wire import node, of, started

# Of openstacksdk, by which the tests look at the cloud.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

NAME = "credentials"
TRUSTEE = "trustee"
KEYSTONE = f"[Global]\nauth-url = {url('keystone', '/v3')}\nregion = {REGION}\n"


class Keystone:
    """What the project's user can hand out."""

    def __init__(self, real: Real) -> None:
        self.identity: Any = real.api.identity
        self.user = str(real.api.current_user_id)
        self.project = str(real.api.current_project_id)
        admin = seed.connect("admin", "admin").identity
        found = admin.find_user(TRUSTEE)
        self.trustee = str(
            (found or admin.create_user(name=TRUSTEE, password=PASSWORD, domain_id="default")).id
        )

    def credential(self) -> Any:
        return self.identity.create_application_credential(self.user, "ccm", secret=PASSWORD)

    def trust(self) -> str:
        made = self.identity.create_trust(
            trustor_user_id=self.user,
            trustee_user_id=self.trustee,
            project_id=self.project,
            impersonation=True,
            roles=[{"name": name} for name in ("member", "reader")],
        )
        return str(made.id)

    def clean(self) -> None:
        for one in self.identity.application_credentials(self.user):
            self.identity.delete_application_credential(self.user, one)
        for one in self.identity.trusts(trustor_user_id=self.user):
            self.identity.delete_trust(one)


@pytest.fixture(scope="module")
def room() -> Real:
    return project(NAME)


@pytest.fixture
def keystone(room: Real) -> Iterator[Keystone]:
    made = Keystone(room)
    made.clean()
    yield made
    made.clean()


async def sees(config: str, id_: str) -> bool:
    """Whether a provider with these credentials sees a server of the project."""
    async with started(config) as provider:
        assert provider.instances is not None
        found = await provider.instances.describe([*of([id_]), node("nobody")])
    assert found["nobody"] == NotFound()
    return isinstance(found["n0"], Instance)


async def test_every_sort_of_credentials_opens_the_project(
    room: Real, keystone: Keystone, tmp_path: Path
) -> None:
    room.clean()
    (id_,) = await room.servers("seen")
    credential = keystone.credential()
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(
        "clouds:\n  here:\n    region_name: " + REGION + "\n    auth_type: v3applicationcredential"
        f"\n    auth:\n      auth_url: {url('keystone', '/v3')}"
        f"\n      application_credential_id: {credential.id}"
        f"\n      application_credential_secret: {PASSWORD}\n"
    )
    token = room.api.session.get_token()
    sorts = {
        "application credential": f"application-credential-id = {credential.id}\n"
        f"application-credential-secret = {PASSWORD}\n",
        "application credential by name": "application-credential-name = ccm\n"
        f"application-credential-secret = {PASSWORD}\nuser-id = {keystone.user}\n",
        "trust": f"trust-id = {keystone.trust()}\ntrustee-id = {keystone.trustee}\n"
        f"trustee-password = {PASSWORD}\n",
        "password by ids": f"user-id = {keystone.user}\npassword = {PASSWORD}\n"
        f"tenant-id = {keystone.project}\n",
        "token": f"token = {token}\ntenant-id = {keystone.project}\n",
    }
    opened = {sort: await sees(KEYSTONE + keys, id_) for sort, keys in sorts.items()}
    assert opened == dict.fromkeys(sorts, True)
    assert await sees(f"[Global]\nuse-clouds\nclouds-file = {clouds}\ncloud = here\n", id_)
    room.clean()
