"""Starting: where the cluster is, whose credentials are used; what errors of AWS mean."""

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError
from prometheus_client import REGISTRY as DEFAULT

from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled, Unauthenticated
from proreus.cloudprovider.instances import Instance
from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.errors import LacksRight, translated

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .site import PATIENT, Network, config_text, context, node_of, started
from .strict.process import REGION, StrictAWS

ROLE = "arn:aws:iam::123456789012:role/ccm"
SOURCE = "arn:aws:eks:us-east-1:123456789012:cluster/c"


def overrides(aws: StrictAWS) -> str:
    return (
        f'[ServiceOverride "1"]\nService = ec2\nRegion = {REGION}\nURL = {aws.endpoint}\n{PATIENT}'
    )


async def describe(provider: CloudProvider, id_: str) -> Any:
    assert provider.instances is not None
    found = await provider.instances.describe([node_of(id_)])
    return found[f"node-{id_}"]


async def test_region_network_and_cluster_come_from_this_machine(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    aws.control("imds", {"placement/region": REGION, "instance-id": id_})
    async with started(overrides(aws)) as provider:
        assert provider.has_cluster_id
        assert isinstance(await describe(provider, id_), Instance)


async def test_a_machine_without_a_clusters_tag_has_no_cluster_id(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run(tags={"Name": "x"})
    aws.control("imds", {"placement/region": REGION, "instance-id": id_})
    async with started(overrides(aws)) as provider:
        assert not provider.has_cluster_id


@pytest.mark.parametrize(
    ("imds", "said"),
    [({}, "give Region"), ({"placement/region": REGION}, "give VPC, SubnetID")],
)
async def test_a_setting_that_is_missing_is_named(
    aws: StrictAWS, imds: dict[str, str], said: str
) -> None:
    aws.control("imds", imds)
    with pytest.raises(CloudError, match=said):
        async with started(overrides(aws)):
            pass


async def test_a_role_is_assumed_for_every_call_and_renewed_in_time(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    clock = Clock()
    role = f"RoleARN = {ROLE}\nSourceARN = {SOURCE}"
    aws.control("signed")
    async with started(config_text(aws, network.vpc, role), context(clock=clock)) as provider:
        assert isinstance(await describe(provider, id_), Instance)
        assert isinstance(await describe(provider, id_), Instance)
        (assume, *rest) = aws.control("signed")
        clock.ahead += timedelta(minutes=55)
        aws.fail("AssumeRole")
        later: list[Any] = []
        while len({key for operation, key, *_ in later if operation == "DescribeInstances"}) < 2:
            assert isinstance(await describe(provider, id_), Instance), "the old ones still serve"
            later += aws.control("signed")
            clock.ahead += timedelta(seconds=11)
    assert assume[0] == "AssumeRole"
    assert assume[3] == SOURCE
    keys = {key for operation, key, *_ in rest if operation == "DescribeInstances"}
    assert len(keys) == 1
    assert assume[1] not in keys
    assert [operation for operation, *_ in later].count("AssumeRole") == 2
    assert {key for operation, key, *_ in later if operation == "DescribeInstances"} > keys


async def test_a_throttled_read_is_repeated_by_the_framework_and_counted(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    link = context()
    name = "cloudprovider_aws_api_throttled_requests_total"

    def throttled() -> float:
        return REGISTRY.get_sample_value(name, {"operation_name": "DescribeInstances"}) or 0.0

    before = throttled()
    async with started(config_text(aws, network.vpc), link) as provider:
        aws.calls()
        aws.fail("DescribeInstances", code="RequestLimitExceeded", status=503, times=2)
        assert isinstance(await describe(provider, id_), Instance)
        assert aws.calls() == ["ec2.DescribeInstances"] * 3
    assert throttled() - before == 2
    assert [call.outcome.value for call in link.calls] == ["throttled", "throttled", "ok"]
    assert {call.quota for call in link.calls} == {"ec2.DescribeInstances"}
    assert DEFAULT.get_sample_value(name) is None


async def test_signatures_have_region_and_name_of_the_override(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    ours = f"Service = ec2\nRegion = {REGION}\nURL = {aws.endpoint}\nSigningRegion = "
    text = config_text(aws, network.vpc)
    assert f"{ours}{REGION}" in text
    other = text.replace(f"{ours}{REGION}", f"{ours}eu-west-9\nSigningName = other")
    aws.control("signed")
    async with started(other) as provider:
        with pytest.raises(CloudError):
            await describe(provider, id_)
    assert {one[2] for one in aws.control("signed")} == {"eu-west-9/other"}


def client_error(
    code: str, message: str = "", status: int = 400, *, after: str = ""
) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": after}},
        },
        "DescribeInstances",
    )


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (client_error("RequestLimitExceeded", status=503), Throttled),
        (client_error("Throttling"), Throttled),
        (client_error("Whatever", status=429), Throttled),
        (client_error("UnauthorizedOperation", status=403), LacksRight),
        (client_error("AuthFailure", status=401), Unauthenticated),
        (client_error("ExpiredToken"), Unauthenticated),
        (client_error("InvalidInstanceID.NotFound"), Refused),
        (client_error("InternalError", status=500), Refused),
        (NoCredentialsError(), Unauthenticated),
        (ReadTimeoutError(endpoint_url="http://x"), CallTimeout),
    ],
)
def test_an_error_of_aws_is_the_frameworks(raised: Exception, kind: type[CloudError]) -> None:
    error = translated("ec2.DescribeInstances", raised)
    assert type(error) is kind
    assert str(error).startswith("ec2.DescribeInstances: ")


def test_the_wait_and_the_reason_that_aws_gives_are_kept() -> None:
    waiting = translated("x.Y", client_error("Throttling", after="7"))
    assert isinstance(waiting, Throttled)
    assert waiting.after == 7
    encoded = "You may not. Encoded authorization failure message: AbCd" + "x" * 5000
    assert str(translated("x.Y", client_error("UnauthorizedOperation", encoded))).endswith("not.")


def test_an_error_about_a_signature_shows_no_part_of_the_token_that_was_signed() -> None:
    """AWS repeats the request, as when a proxy has changed it on its way."""
    repeated = (
        "The request signature we calculated does not match the signature you provided. Check your"
        " AWS Secret Access Key and signing method. Consult the service documentation for details."
        "\n\nThe Canonical String for this request should have been\n'POST\n/\n\nhost:ec2\n"
        "x-amz-security-token:IQoJb3JpZ2lu"
    )
    error = str(translated("ec2.X", client_error("SignatureDoesNotMatch", repeated, status=403)))
    assert error.endswith("Consult the service documentation for details.")
