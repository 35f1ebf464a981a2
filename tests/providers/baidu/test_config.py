"""The cloud-config of the provider `baidu`: the official file, keys of ours, what is wrong with it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import ConfigError, Unauthenticated
from proreus.providers.baidu import BaiduCloud
from proreus.providers.baidu.config import BaiduConfig

from .emulator.server import Emulator
from .site import cloud, describe, node, started

OFFICIAL = {
    "ClusterId": "cce-5f3k2n8a",
    "ClusterName": "shop",
    "AccessKeyID": "key",
    "SecretAccessKey": "secret/+==",
    "Region": "bj",
    "VpcId": "vpc-9kq2b6mw1c3d",
    "SubnetId": "sbn-25khfnxgfb73",
    "MasterId": "master",
    "Endpoint": "cce.bj.baidubce.com",
    "NodeName": "",
    "Debug": True,
}


def parsed(**changed: Any) -> BaiduConfig:
    given = {key: one for key, one in {**OFFICIAL, **changed}.items() if one is not None}
    return read(json.dumps(given), BaiduConfig, source="cloud-config")


def test_the_official_file_is_read_unmodified() -> None:
    warned: list[str] = []
    found = read(json.dumps(OFFICIAL), BaiduConfig, source="cloud.config", warn=warned.append)
    assert (found.cluster_id, found.cluster_name) == ("cce-5f3k2n8a", "shop")
    assert found.credentials().access_key_id == "key"
    assert found.credentials().secret_access_key == "secret/+=="
    assert (found.region, found.vpc_id, found.subnet_id) == (
        "bj", "vpc-9kq2b6mw1c3d", "sbn-25khfnxgfb73",
    )  # fmt: skip
    assert found.timeout == timedelta(seconds=30)
    assert not found.api_endpoint
    assert not warned


def test_a_name_that_nobody_knows_is_warned_about_as_the_official_manager_passes_it_over() -> None:
    warned: list[str] = []
    text = json.dumps({**OFFICIAL, "Reigon": "gz"})
    read(text, BaiduConfig, source="cloud.config", warn=warned.append)
    assert len(warned) == 1
    assert "Reigon" in warned[0]


def test_everything_that_is_wrong_is_told_at_once_and_names_its_key() -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(
            ClusterId="a/b", Region="Bei jing", VpcId="mine", SubnetId="mine", AccessKeyID=None,
            SecretAccessKey=" ", Timeout="0s", APIEndpoint="bce.example.org",
        )  # fmt: skip
    told = "\n".join(refused.value.problems)
    keys = ("ClusterId", "Region", "VpcId", "SubnetId", "AccessKeyID", "SecretAccessKey")
    for key in (*keys, "Timeout", "APIEndpoint"):
        assert f"{key}: " in told
    assert len(refused.value.problems) == 8
    with pytest.raises(ConfigError, match="without a path"):
        parsed(APIEndpoint="https://bce.example.org/v1")


def test_keys_are_in_the_file_or_in_one_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    with pytest.raises(ConfigError, match="AccessKeyID: give either"):
        parsed(CredentialsFile=str(file))
    found = parsed(CredentialsFile=str(file), AccessKeyID=None, SecretAccessKey=None)
    for text, problem in ((None, "cannot be read"), ("{", "must be JSON"), (
        '{"accessKeyId": "", "secretAccessKey": "s"}', "is empty",
    )):  # fmt: skip
        if text is not None:
            file.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            found.credentials()
    file.write_text(
        json.dumps({"accessKeyId": "a", "secretAccessKey": "s", "sessionToken": "t", "userId": "u"})
    )
    key = found.credentials()
    assert (key.access_key_id, key.secret_access_key, key.session_token) == ("a", "s", "t")
    assert "<hidden>" in repr(key)
    assert BaiduCloud(found).watched_files == (str(file),)


def test_without_a_config_the_provider_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="ClusterId and Region"):
        BaiduCloud(None)


def test_no_secret_is_shown() -> None:
    assert "secret/+==" not in repr(parsed(SessionToken="token-of-sts"))
    assert "token-of-sts" not in repr(parsed(SessionToken="token-of-sts"))


async def test_a_temporary_key_counts_with_its_token_only(
    emulator: Emulator, tmp_path: Path
) -> None:
    emulator.token = "planted-token-0001"
    async with started(emulator) as provider:
        await describe(provider, node("node-1"))
    async with started(emulator, SessionToken=None) as provider:
        with pytest.raises(Unauthenticated, match="InvalidSessionToken"):
            await describe(provider, node("node-1"))
    file = tmp_path / "credentials"
    file.write_text(
        json.dumps(
            {
                "accessKeyId": emulator.key,
                "secretAccessKey": emulator.secret,
                "sessionToken": emulator.token,
            }
        )
    )
    keys: dict[str, Any] = {"AccessKeyID": None, "SecretAccessKey": None, "SessionToken": None}
    async with started(emulator, CredentialsFile=str(file), **keys) as provider:
        await describe(provider, node("node-1"))


async def test_a_wrong_key_is_told_without_the_secret(emulator: Emulator) -> None:
    async with started(emulator, SecretAccessKey="another-planted-secret") as provider:
        with pytest.raises(Unauthenticated) as refused:
            await describe(provider, node("node-1"))
    assert "SignatureDoesNotMatch" in str(refused.value)
    assert "planted" not in str(refused.value)


def test_a_provider_of_a_file_without_endpoint_is_made() -> None:
    assert cloud(json.dumps(OFFICIAL)).name == "cce"
