"""Claims that may grow, and those that may not; the cases are those of Kubernetes' own plug-in."""

from typing import Any

import pytest

from proreus.controllers.persistent_volume_claim_resize import plan as plans
from proreus.controllers.persistent_volume_claim_resize.plan import NOT_BOUND, NOT_EXPANDABLE
from proreus.kube.objects import StorageClass

GOLD = StorageClass(allow_volume_expansion=True)
SILVER = StorageClass()


def claim(
    size: str = "1Gi", class_: str | None = "gold", phase: str = "Bound", annotation: str = ""
) -> dict[str, Any]:
    key = "volume.beta.kubernetes.io/storage-class"
    return {
        "metadata": {"annotations": {key: annotation}} if annotation else {},
        "spec": {
            "storageClassName": class_,
            "resources": {"requests": {"storage": size} if size else {}},
        },
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("old", "new", "found", "refusal"),
    [
        (claim("1Gi"), claim("2Gi"), GOLD, ""),
        (claim("1Gi"), claim("2Gi"), SILVER, NOT_EXPANDABLE),
        (claim("1Gi"), claim("2Gi"), None, NOT_EXPANDABLE),
        (claim("1Gi", phase="Pending"), claim("2Gi", phase="Pending"), GOLD, NOT_BOUND),
        (claim("1Gi", phase="Lost"), claim("2Gi"), GOLD, NOT_BOUND),
        (claim("2Gi"), claim("1Gi"), None, ""),
        (claim("1Gi"), claim("1024Mi"), None, ""),
        (claim("1Gi"), claim("1G"), None, ""),
        (claim("1000Mi"), claim("1.1e9"), SILVER, NOT_EXPANDABLE),
        (claim(""), claim(""), None, ""),
        (claim("", phase="Pending"), claim("1Gi"), GOLD, NOT_BOUND),
        ({}, {}, None, ""),
    ],
)
def test_only_bound_claims_of_a_class_that_allows_it_grow(
    old: dict[str, Any], new: dict[str, Any], found: StorageClass | None, refusal: str
) -> None:
    assert plans.refusal(old, new, found) == refusal


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [
        (claim(), claim(), "gold"),
        (claim(class_=None), claim(class_=None), ""),
        (claim(class_=""), claim(class_=""), ""),
        (claim(class_="gold"), claim(class_="silver"), ""),
        (claim(class_=None), claim(class_="gold"), ""),
        (claim(annotation="beta"), claim(annotation="beta"), "beta"),
        (claim(class_="gold", annotation="beta"), claim(class_="gold"), ""),
        ({}, {}, ""),
    ],
)
def test_the_class_that_is_asked_is_that_of_both(
    old: dict[str, Any], new: dict[str, Any], asked: str
) -> None:
    assert plans.class_to_ask(old, new) == asked
