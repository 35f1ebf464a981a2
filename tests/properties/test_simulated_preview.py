"""The preview of the provider `simulated` names exactly what `ensure` then does."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.simulated.plan import (
    AddTargets,
    Change,
    Create,
    Delete,
    RemoveTargets,
    Step,
    owned,
    plan,
)
from proreus.providers.simulated.preview import changes

from .test_simulated_plan import DESIRED, KINDS, REGION, ModelCloud, converge


def part_changes(step: Step) -> list[tuple[str, str]]:
    match step:
        case Create(collection, _):
            return [("create", str(KINDS[collection].__struct_config__.tag))]
        case Change(part, _):
            return [("change", str(part.__struct_config__.tag))]
        case Delete(part):
            return [("delete", str(part.__struct_config__.tag))]
        case AddTargets(_, targets):
            return [("create", "target")] * len(targets)
        case RemoveTargets(_, ids):
            return [("delete", "target")] * len(ids)


@given(DESIRED, DESIRED, st.data())
def test_the_preview_names_what_is_then_done(
    first: LoadBalancer, second: LoadBalancer, data: st.DataObject
) -> None:
    cloud = ModelCloud()
    converge(cloud, first)
    for id_ in data.draw(st.sets(st.sampled_from(sorted(cloud.parts)))):
        del cloud.parts[id_]

    shown = changes(second, owned(second.ref, cloud.parts.values()), REGION)

    done: list[tuple[str, str]] = []
    while steps := plan(second, owned(second.ref, cloud.parts.values()), REGION):
        for step in steps:
            done += part_changes(step)
            cloud.take(step)
    assert Counter((one.action, one.part.split()[0]) for one in shown) == Counter(done)
