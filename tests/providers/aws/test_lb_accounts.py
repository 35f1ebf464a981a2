"""Load balancers after the credentials were changed: another account shows nothing of what there is."""

import pytest

from proreus.cloudprovider import CloudError, Done

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .lb_site import LBSite
from .site import config_text, context, node_of, started
from .strict.process import StrictAWS

ELSEWHERE = "i-0123456789abcdef0"
"""An instance that only the former account has."""


@pytest.mark.parametrize("kind", ["", "nlb"])
async def test_a_service_stays_while_neither_its_load_balancer_nor_a_node_s_machine_is_shown(
    aws: StrictAWS, kind: str
) -> None:
    site = LBSite(aws, kind)
    (here,) = site.machines(1)
    nodes = Objects([node_of(ELSEWHERE)])
    text = config_text(aws, site.network.vpc)
    async with started(text, context(nodes=nodes)) as provider:
        site.provider = provider
        known = site.desired([ELSEWHERE], shown="a-1.elb.example.org")
        answer = await site.delete(known)
        assert isinstance(answer, CloudError)
        assert "neither the Service's load balancer nor a machine" in str(answer)
        assert await site.delete(site.desired([ELSEWHERE])) == Done(found=False)
        nodes.by_key["here"] = node_of(here)
        assert await site.delete(known) == Done(found=False)
        await site.made(site.desired([here]))
        nodes.by_key = {"there": node_of(ELSEWHERE)}
        assert await site.deleted(known) == Done(found=True)
