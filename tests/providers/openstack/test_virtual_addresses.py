"""Addresses for which machines answer by allowed address pairs: no Service gets one by naming it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from proreus.cloudprovider import Ensured, InvalidRequest

from .balancing import INTERNAL, Balancing, P, balancing
from .wire import port, started, uuid


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        made.wire.good_tokens = {f"token-{number}" for number in range(10)}
        yield made


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_virtual_address_of_others_is_refused(
    site: Balancing, by: str, *, is_listed: bool
) -> None:
    """Of a control plane: its machines answer for it, and a port that nothing has may keep it."""
    virtual, keeper = "10.0.0.240", port(uuid(702), "", "10.0.0.240")
    site.wire.ports[0]["allowed_address_pairs"] = [
        {"ip_address": "10.244.1.0/24", "mac_address": "fa:16:3e:00:00:01"},
        {"ip_address": f"{virtual}/32", "mac_address": "fa:16:3e:00:00:01"},
    ]
    named: dict[str, Any] = {"load_balancer_ip": virtual}
    annotations = {INTERNAL: "true"}
    if by == "port-id":
        site.wire.ports.append(keeper)
        named = {}
        annotations |= {f"{P}port-id": keeper["id"]}
    allowed = keeper["id"] if by == "port-id" else virtual
    sections = f"[Tenants]\nallow = shop={allowed}\n" if is_listed else ""
    async with started(site.wire.config(sections=sections)) as provider:
        answer = await site.ensure(provider, site.service(annotations, **named))
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest)
        assert by in str(answer)
        assert "port p-1 has it among its allowed address pairs" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        site.wire.ports[0]["allowed_address_pairs"] = []
        assert isinstance(await site.ensure(provider, site.service(annotations, **named)), Ensured)
