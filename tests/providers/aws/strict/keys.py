"""The access key that is limited by the IAM policy, and where that is: for tests, without moto."""

from pathlib import Path

KEY = "AKIAIOSFODNN7EXAMPLE"
FILE = Path(__file__).parents[4] / "deploy" / "aws" / "iam-policy.json"
