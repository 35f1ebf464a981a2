"""Write marks in the forms in which clouds keep them: labels, lists of tags, one text. Pure.

A cloud with free tags keeps marks as they are. Elsewhere a form writes them, and reads them again:

    LABELS.write(marks)                          # GCE: 63 small letters, digits, - and _
    TagList(255).write(marks)                    # OpenStack: a list of texts
    one_value(ref)                               # a cloud that has room for one tag only
    Description(255).write("For shop/web", ref)  # a cloud that has nothing but a description

What they read becomes an `Owner` (`owner_of`), and `verdict` says what that is to a Service. Where
names are all there is, the Service's UID in them is the proof.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.identity import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_FINGERPRINT,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    OwnedObject,
)
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import NameForm, cut
from proreus.cloudprovider.ownership import Owner

_ALL: Final = (MARK_CLUSTER, MARK_CLUSTER_UID, MARK_SERVICE, MARK_SERVICE_UID, MARK_FINGERPRINT)
_PARTS: Final = 4
_PROOF = re.compile(r" \((?P<uid>[^ ()]+) (?P<cluster_uid>[^ ()]+)(?P<words>( [^ ()]+)*)\)\Z")


def owner_of(marks: Mapping[str, str]) -> Owner | None:
    """Return the owner that our marks name; None without any. Other tags are passed over."""
    namespace, _, service = marks.get(MARK_SERVICE, "").partition("/")
    found = Owner(
        marks.get(MARK_CLUSTER_UID, ""),
        marks.get(MARK_CLUSTER, ""),
        namespace,
        service,
        marks.get(MARK_SERVICE_UID, ""),
    )
    return found if found != Owner() else None


def owned_object(kind: str, id_: str, marks: Mapping[str, str]) -> OwnedObject:
    """Describe an object for `list_owned` by its marks, the record of its fingerprint included."""
    made_from = marks.get(MARK_FINGERPRINT, "")
    return OwnedObject(
        kind,
        id_,
        service=marks.get(MARK_SERVICE, ""),
        service_uid=marks.get(MARK_SERVICE_UID, ""),
        fingerprint=made_from,
        recorded=bool(made_from),
    )


def one_value(ref: LoadBalancerRef) -> str:
    """Write the owner of an object as one value, for a cloud that has room for a single tag."""
    return f"{ref.cluster.uid}/{ref.key}/{ref.uid}"


def read_one_value(value: str) -> Owner:
    """Read the owner from what `one_value` wrote; another text is the UID of another cluster."""
    parts = value.split("/")
    if len(parts) != _PARTS:
        return Owner(cluster_uid=value)
    cluster, namespace, name, uid = parts
    return Owner(cluster, "", namespace, name, uid)


class TagList(msgspec.Struct, frozen=True):
    """A form in which a cloud keeps marks as a list of texts, each `key=value`.

    Attributes:
        limit: The most characters of a tag. The UIDs always fit; other marks that do not fit are
            left out.
        forbidden: The character that a tag cannot have; it is replaced by `_`.
    """

    limit: int
    forbidden: str = ","

    def write(self, marks: Mapping[str, str]) -> tuple[str, ...]:
        """Write marks as tags."""
        tags = (f"{key}={value}" for key, value in sorted(marks.items()))
        return tuple(tag.replace(self.forbidden, "_") for tag in tags if len(tag) <= self.limit)

    def values(self, tags: Iterable[str], key: str) -> list[str]:
        """Return the values of all tags with a key: an object may have several owners."""
        pairs = (tag.partition("=") for tag in tags)
        return [value for name, _, value in pairs if name == key]

    def read(self, tags: Iterable[str]) -> dict[str, str]:
        """Read the marks among tags; of several values of a key the first."""
        tags = tuple(tags)
        return {key: found[0] for key in _ALL if (found := self.values(tags, key))}


class LabelForm(msgspec.Struct, frozen=True):
    """A form of marks as labels, whose keys and values may have only certain characters.

    The name of a Service is written with `_` for `/`, and left out if it is too long: its UID
    suffices. A name of the cluster that does not fit is altered; nobody relies on it beside the
    UIDs.

    Attributes:
        form: The form that keys and values must have.
    """

    form: NameForm

    def write(self, marks: Mapping[str, str]) -> dict[str, str]:
        """Write marks as labels."""
        found = {self.form.clean(key): value for key, value in marks.items()}
        service, cluster = self.form.clean(MARK_SERVICE), self.form.clean(MARK_CLUSTER)
        if service in found:
            found[service] = found[service].replace("/", "_")
        if cluster in found:
            found[cluster] = self.form.name(found[cluster])
        return {key: value for key, value in found.items() if self.form.fits(value)}

    def read(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Read the marks among labels."""
        keys = {self.form.clean(key): key for key in _ALL}
        found = {keys[key]: value for key, value in labels.items() if key in keys}
        if MARK_SERVICE in found:
            found[MARK_SERVICE] = found[MARK_SERVICE].replace("_", "/")
        return found


LABELS: Final = LabelForm(NameForm(63, "a-z0-9_-", edges=""))
"""Labels as GCE has them."""


class Description(msgspec.Struct, frozen=True):
    """A form of marks as one text: what people read, then the UIDs of Service and cluster.

    Attributes:
        limit: The most characters; the text for people is cut, never the UIDs.
        words: The words that may stand beside the UIDs.
    """

    limit: int
    words: frozenset[str] = frozenset()

    def write(self, text: str, ref: LoadBalancerRef, *words: str) -> str:
        """Write the description of an object made for a Service, with some of the words."""
        return cut(text, self.limit, f" ({' '.join((ref.uid, ref.cluster.uid, *words))})")

    def read(self, description: str) -> tuple[str, Owner | None, frozenset[str]]:
        """Return the text for people, the owner by the UIDs, and the words beside these."""
        found = _PROOF.search(description)
        words = frozenset(found["words"].split() if found is not None else ())
        if found is None or not words <= self.words:
            return description, None, frozenset()
        owner = Owner(found["cluster_uid"], service_uid=found["uid"])
        return description[: found.start()], owner, words
