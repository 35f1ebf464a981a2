"""What is wrong with clouds.yaml is told as such, and shows nothing of it."""

import logging
from pathlib import Path

import pytest

from proreus.cloudprovider.errors import ConfigError

from .wire import cloud, context

SECRET = "planted-hunter2"
CLOUD = f"auth: {{auth_url: 'http://k', username: ccm, password: {SECRET}}}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clouds: {one: {auth: {password: *" + SECRET + "}}}", "is no YAML: found undefined alias"),
        ("clouds: {one: {auth: {password: !" + SECRET + " x}}}", "is no YAML: could not determine"),
        ("clouds: {one: {auth: {password: " + SECRET, "is no YAML: "),
        ("clouds: {one: \x01}", "is no YAML: "),
        (f"- {SECRET}", "not a valid mapping"),
        (f"clouds: [{SECRET}]", "has another form"),
        (f"clouds: {SECRET}", "has another form"),
        ("clouds:", "has another form"),
        (f"clouds: {{one: {SECRET}}}", "has another form"),
        ("clouds: {one: }", "has another form"),
        (f"clouds: {{one: {{auth: {SECRET}}}}}", "has another form"),
        (f"clouds: {{one: {{auth: [{SECRET}]}}}}", "has another form"),
        (f"clouds: {{one: {{profile: [x], {CLOUD}}}}}", "has another form"),
        (f"clouds: {{one: {{auth_type: [x], {CLOUD}}}}}", "auth_type"),
        (f"clouds: {{one: {{regions: [{{values: {{{CLOUD}}}}}]}}}}", "Invalid region entry"),
    ],
)
async def test_a_clouds_yaml_of_another_form_is_told_without_its_values(
    text: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(text)
    given = f"[Global]\nuse-clouds\nclouds-file = {clouds}\ncloud = one\n"
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as refused:
        await cloud(given).start(context())
    (problem,) = refused.value.problems
    assert "clouds.yaml: " in problem
    assert told in problem
    assert SECRET not in problem
    assert SECRET not in caplog.text


async def test_a_clouds_yaml_that_is_not_there_is_told(tmp_path: Path) -> None:
    given = f"[Global]\nuse-clouds\nclouds-file = {tmp_path / 'none'}\ncloud = one\n"
    with pytest.raises(ConfigError, match="clouds-file: cannot be read: No such file"):
        await cloud(given).start(context())
