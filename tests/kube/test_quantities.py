"""Quantities of the Kubernetes API."""

from decimal import Decimal

import pytest

from proreus.kube.quantities import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"), ("1", "1"), ("+1", "1"), ("-1", "-1"), ("1.5", "1.5"), (".5", "0.5"), ("5.", "5"),
        ("1Ki", "1024"), ("1.5Gi", "1610612736"), ("2Ei", "2305843009213693952"),
        ("1k", "1000"), ("1M", "1000000"), ("1E", "1000000000000000000"), ("100m", "0.1"),
        ("1u", "0.000001"), ("1n", "0.000000001"), ("1e3", "1000"), ("1E3", "1000"), ("12e-1", "1.2"),
    ],
)  # fmt: skip
def test_a_quantity_is_read(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1KB", "1e", "e3", "1e3Gi", "1_0", "\u0661", "1e9999", "NaN"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity(text)
