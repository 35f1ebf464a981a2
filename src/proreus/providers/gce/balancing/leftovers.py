"""Tell what is left of a load balancer that was internal and is to be external, or reverse. Pure.

The former one goes first. A process that ends meanwhile may have deleted the forwarding rule, which
alone tells what there was: the rest is known by names, and by the schemes of parts whose names are
the same in both.
"""

from collections.abc import Collection

import msgspec

from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.parts import (
    INTERNAL,
    Address,
    BackendService,
    Form,
    Part,
    Rule,
)
from proreus.providers.gce.balancing.steps import Observed

_INSIDE = frozenset({Form.INTERNAL, Form.SUBSET})


def forms_beside(desired: Desired, forms: Collection[Form]) -> tuple[Form, ...]:
    """Return the forms that the former load balancer may have had.

    Args:
        desired: The desired state.
        forms: The forms that this manager makes.
    """
    if desired.internal:
        return tuple(one for one in forms if one is not desired.form)
    return tuple(one for one in forms if one in _INSIDE)


def leftovers(desired: Desired, observed: Observed, forms: Collection[Form]) -> Observed:
    """Return the parts that the former load balancer has left.

    Args:
        desired: The desired state.
        observed: All that there may be by the Service's name, of all forms.
        forms: The forms that this manager makes.
    """
    kept: set[object] = set()
    if desired.subset is None:
        others = set(forms) - set(forms_beside(desired, forms)) | {desired.form}
        kept = set(naming.parts_of(desired.name, None, others))
    left = {
        key: one
        for key, one in observed.parts.items()
        if key not in kept or _is_of_other_scheme(desired, one)
    }
    return msgspec.structs.replace(observed, parts=left)


def _is_of_other_scheme(desired: Desired, part: Part) -> bool:
    if isinstance(part, Rule | BackendService):
        return part.load_balancing_scheme != desired.rules[0].load_balancing_scheme
    return isinstance(part, Address) and (part.address_type == INTERNAL) is not desired.internal
