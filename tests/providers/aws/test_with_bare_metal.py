"""One manager of `aws` and `local`: bare metal beside instances of EC2."""

from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ..bare_metal import Cloud, lives_beside_bare_metal  # noqa: TID252
from .site import Network, config_text
from .strict.process import StrictAWS

pytestmark = pytest.mark.long


async def test_bare_metal_lives_beside_instances_whatever_ec2_does(
    control_plane: ControlPlane, aws: StrictAWS, tmp_path: Path
) -> None:
    network = Network(aws)
    network.run(3)
    made = network.ec2.describe_instances()["Reservations"]
    ids = {
        machine["PrivateDnsName"]: machine["InstanceId"]
        for reservation in made
        for machine in reservation["Instances"]
    }

    def leave(name: str) -> None:
        network.ec2.terminate_instances(InstanceIds=[ids[name]])

    def hang() -> None:
        aws.control("delay", {"DescribeInstances": 3600.0})

    def recover() -> None:
        aws.control("delay", {})

    cloud = Cloud("aws", config_text(aws, network.vpc), ids, "aws://", leave, hang, recover)
    async with set_up(control_plane, tmp_path) as site:
        await lives_beside_bare_metal(site, cloud, tmp_path)
