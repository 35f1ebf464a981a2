"""The strict layer in a process of its own, and the client of its control port."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import requests
from botocore.config import Config

REGION = "us-east-1"
OWNER = "AKIAI44QH8DHBEXAMPLE"
"""The access key of whoever owns the account and may do all."""
_START_SECONDS = 600.0


class StrictAWS:
    """All of AWS on a port of this machine; what it holds is gone after `reset`."""

    def __init__(self, directory: Path) -> None:
        ready = directory / "ready"
        self._clients: dict[tuple[str, str, str], Any] = {}
        root = Path(__file__).parents[4]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.providers.aws.strict", str(ready)],
            cwd=root,
            env={
                **os.environ,
                "AWS_CONFIG_FILE": os.devnull,
                "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
            },
        )
        until = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                self.close()
                raise RuntimeError("the strict layer did not start; see its output")
            time.sleep(0.05)
        self.endpoint = ready.read_text()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def control(self, verb: str, body: Any = None) -> Any:
        answer = requests.post(f"{self.endpoint}/control/{verb}", json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def reset(self) -> None:
        """Everything is gone, and nothing fails any more."""
        self.control("reset")

    def configure(self, **settings: Any) -> None:
        """Change `faults.Settings`."""
        self.control("configure", settings)

    def throttle(self, *throttles: dict[str, Any]) -> None:
        """Set the buckets: operation, rate, burst."""
        self.control("throttle", throttles)

    def fail(self, operation: str, **failure: Any) -> None:
        """Answer the next `times` requests with an error: code, message, status, after_effect."""
        self.control("fail", {"operation": operation, **failure})

    def unspent(self) -> list[str]:
        """Operations that still have to fail."""
        found: list[str] = self.control("unspent")
        return found

    def calls(self) -> list[str]:
        """The requests since this was last asked, as `ec2.DescribeInstances`."""
        return [".".join(call) for call in self.control("calls")]

    def client(self, service: str, region: str = REGION, key: str = OWNER) -> Any:
        """A client as the account's owner would have it, for making things.

        It is made once: that takes as long as ten calls.
        """
        if (client := self._clients.get((service, region, key))) is None:
            client = self._clients[service, region, key] = boto3.client(
                service,
                region_name=region,
                endpoint_url=self.endpoint,
                aws_access_key_id=key,
                aws_secret_access_key="secret",
                config=Config(retries={"total_max_attempts": 1}, read_timeout=120),
            )
        return client
