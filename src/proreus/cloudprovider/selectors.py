"""Define selectors of labels as a cloud-config has them, and match labels. Pure.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from proreus.cloudprovider.config import ConfigSection

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that each namespace has: its name. Only for others must namespaces be read."""

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class Requirement(ConfigSection, frozen=True, kw_only=True):
    """An entry of `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report unknown operators, and values that are missing or not allowed."""
        if self.operator not in _OPERATORS:
            yield f"operator: {self.operator!r} must be In, NotIn, Exists or DoesNotExist"
        elif bool(self.values) is not (self.operator in {"In", "NotIn"}):
            yield "values: give some with In and NotIn, and none with Exists and DoesNotExist"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels meet the requirement; a missing key has none of the values."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class Selector(ConfigSection, frozen=True, kw_only=True, rename="camel"):
    """A selector of labels, as Kubernetes has it; an empty one matches everything."""

    match_labels: Mapping[str, str] = MappingProxyType({})
    match_expressions: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether the selector requires anything."""
        return bool(self.match_labels or self.match_expressions)

    @property
    def keys(self) -> set[str]:
        """The keys of the labels that the selector looks at."""
        return {*self.match_labels, *(one.key for one in self.match_expressions)}

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels are selected."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            one.matches(labels) for one in self.match_expressions
        )


def reads_namespaces(selector: Selector) -> bool:
    """Tell whether a selector of namespaces looks at other labels than their names."""
    return bool(selector.keys - {NAMESPACE_NAME})


def selects_namespace(selector: Selector, name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a selector matches a namespace, which has its name as a label in any case."""
    return selector.matches({**labels, NAMESPACE_NAME: name})
