"""The preview of the provider `simulated` names exactly what `ensure` then does."""

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.cloudprovider.steps import preview_plan
from proreus.providers.simulated.plan import owned, plan
from proreus.providers.simulated.steps import Step

from .test_simulated_plan import DESIRED, KINDS, REGION, ModelCloud, converge


def part_changes(step: Step) -> list[tuple[str, str]]:
    """What the call does, by the words of the preview."""
    collection, _, verb = step.call.name.partition(".")
    if verb.endswith("_targets"):
        body = json.loads(step.call.body.content) if step.call.body is not None else {}
        count = len(body.get("targets", body.get("instance_ids", ())))
        return [("create" if verb == "add_targets" else "delete", "target")] * count
    action = "change" if verb == "update" else verb
    return [(action, str(KINDS[collection].__struct_config__.tag))]


@given(DESIRED, DESIRED, st.data())
def test_the_preview_names_what_is_then_done(
    first: LoadBalancer, second: LoadBalancer, data: st.DataObject
) -> None:
    cloud = ModelCloud()
    converge(cloud, first)
    for id_ in data.draw(st.sets(st.sampled_from(sorted(cloud.parts)))):
        del cloud.parts[id_]

    shown, expected = preview_plan(
        owned(second.ref, cloud.parts.values()), lambda now: plan(second, now, REGION)
    )

    done: list[tuple[str, str]] = []
    while steps := plan(second, owned(second.ref, cloud.parts.values()), REGION):
        for step in steps:
            done += part_changes(step)
            cloud.take(step)
    assert Counter((one.action, one.part.split()[0]) for one in shown) == Counter(done)
    now = owned(second.ref, cloud.parts.values())
    assert len(expected.parts) == len(now.parts)
    assert expected.balancers[0].targets == now.balancers[0].targets
