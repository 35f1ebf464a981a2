import msgspec
import pytest

from proreus.app.configz import FLAGS, NAME, configz, go_duration
from proreus.app.flags import flags_of, named
from proreus.app.options import Options


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (15, "15s"), (60, "1m0s"), (90.5, "1m30.5s"), (3600, "1h0m0s"),
        (43200, "12h0m0s"), (0.25, "250ms"), (3725, "1h2m5s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_in_go(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_the_configuration_has_gos_shape_and_every_flag() -> None:
    found = configz(Options(cloud_provider="simulated", cluster_cidr=("10.0.0.0/16", "fd00::/48")))
    shared = found[NAME]["KubeCloudShared"]
    assert shared["CloudProvider"] == {"Name": "simulated", "CloudConfigFile": ""}
    assert shared["ClusterCIDR"] == "10.0.0.0/16,fd00::/48"
    assert found[NAME]["Generic"]["LeaderElection"]["RenewDeadline"] == "10s"
    assert found[NAME]["NodeStatusUpdateFrequency"] == "5m0s"
    assert set(found[FLAGS]) == {named(field) for field in flags_of(Options)}
    assert msgspec.json.encode(found)


def test_a_password_in_the_url_of_the_api_server_is_not_shown() -> None:
    for url in ("https://ann:s3cret@api:6443/x", "https://api:6443/x"):
        assert configz(Options(master=url))[FLAGS]["master"] == "https://api:6443/x"
