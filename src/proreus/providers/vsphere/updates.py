"""Keep the properties of managed objects current by what a property collector tells. Pure."""

from collections.abc import Collection
from typing import Any
from xml.etree import ElementTree as ET

from proreus.cloudprovider.errors import CloudError
from proreus.providers.vsphere.soap import Ref, child, children, reference, text_of, value_of


class Objects:
    """The properties of all objects of a filter, by reference and path.

    Attributes:
        of: The properties of each object.
        version: The version of the last change; "" before the first.
        is_partial: Whether the server has announced more changes than it has sent so far.
    """

    def __init__(self, paths: Collection[str]) -> None:
        """Begin with no objects; all of `paths` are read."""
        self._paths = frozenset(paths)
        self.of: dict[Ref, dict[str, Any]] = {}
        self.version = ""
        self.is_partial = False

    def apply(self, returned: list[ET.Element]) -> set[Ref]:
        """Apply the changes that WaitForUpdatesEx returned; return the objects that changed.

        Raises:
            CloudError: The answer cannot be understood: what is known is not certain any more.
        """
        self.is_partial = False
        changed: set[Ref] = set()
        for update in returned:
            version = text_of(update, "version")
            if not version:
                raise CloudError("vcenter.WaitForUpdatesEx: the answer has no version")
            for of_filter in children(update, "filterSet"):
                for one in children(of_filter, "objectSet"):
                    changed.add(self._apply_object(one))
            self.version = version
            self.is_partial = text_of(update, "truncated") == "true"
        return changed

    def _apply_object(self, update: ET.Element) -> Ref:
        obj = child(update, "obj")
        if obj is None:
            raise CloudError("vcenter.WaitForUpdatesEx: an update names no object")
        ref, kind = reference(obj), text_of(update, "kind")
        if kind == "leave":
            self.of.pop(ref, None)
            return ref
        # What enters twice says that the server has begun anew: then it need not tell what left.
        if kind not in {"enter", "modify"} or (kind == "enter") == (ref in self.of):
            raise CloudError(
                f"vcenter.WaitForUpdatesEx: unexpected update of kind {kind!r} of {ref}"
            )
        if kind == "enter":
            self.of[ref] = {}
        for change in children(update, "changeSet"):
            self._apply_change(self.of[ref], change)
        return ref

    def _apply_change(self, properties: dict[str, Any], change: ET.Element) -> None:
        path, value = text_of(change, "name"), child(change, "val")
        if path not in self._paths:
            raise CloudError(
                f"vcenter.WaitForUpdatesEx: unexpected change of a part of a property: {path}"
            )
        if value is None or text_of(change, "op") in {"remove", "indirectRemove"}:
            properties.pop(path, None)
        else:
            properties[path] = value_of(value)
