"""Make names of cloud objects: safe, stable, and no longer than the cloud takes. Pure.

    FORM = NameForm(63, "a-z0-9-")
    FORM.name(default_load_balancer_name(ref.uid), "firewall")      # a5e00…-firewall
    FORM.name(ref.cluster.name, ref.namespace, ref.service_name)    # with a digest if that is cut

A name that holds the Service's UID is unique and proves whose the object is (`verdict`). One that
is cut, loses letters, or could be put together from other parts as well ends with a digest of what
it was made from, so that no two objects get the same one. Names that official managers give have
forms of their own, built from the same pieces.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

import msgspec

DIGEST: Final = 10
"""Characters of a digest in a name, as in the official names of AWS."""


def without_zone(text: str) -> str:
    """Return the text of an address or a CIDR, which must not have a zone (RFC 4007).

    Python tells 2001:db8::1%eth0 from the address without it; nftables and clouds do not.

    Raises:
        ValueError: It has one.
    """
    if "%" in text:
        raise ValueError(text)
    return text


def default_load_balancer_name(service_uid: str) -> str:
    """Return the Go framework's name: "a" and the UID without dashes, cut to 32 characters."""
    return ("a" + service_uid.replace("-", ""))[:32]


def cut(text: str, limit: int, end: str = "") -> str:
    """Cut a text so that it has at most `limit` characters with the whole of `end` behind it."""
    return text[: limit - len(end)] + end


def digest_of(traits: Iterable[str], *, algorithm: str = "sha256", length: int = DIGEST) -> str:
    """Return the first characters of a digest of texts, one behind the other, in hexadecimal."""
    digest = hashlib.new(algorithm, "".join(traits).encode(), usedforsecurity=False)
    return digest.hexdigest()[:length]


class NameForm(msgspec.Struct, frozen=True):
    """The form of names that a cloud accepts.

    Attributes:
        limit: The most characters of a name.
        letters: The characters that are allowed, as between the brackets of a regular expression.
            Capitals become small letters where only these are allowed.
        filler: The character that replaces one that is not allowed, and that stands between parts.
        edges: Characters that a name neither begins nor ends with.
    """

    limit: int
    letters: str
    filler: str = "-"
    edges: str = "-"

    def clean(self, text: str) -> str:
        """Replace characters that are not allowed, and cut the text; two texts may become equal."""
        known = text if re.match(f"[{self.letters}]", "A") else text.lower()
        safe = re.sub(f"[^{self.letters}]", self.filler, known)
        return safe.strip(self.edges)[: self.limit].strip(self.edges)

    def fits(self, text: str) -> bool:
        """Tell whether a text can be a name as it is."""
        return self.clean(text) == text

    def name(self, *parts: str) -> str:
        """Join parts to a name; no two lists of parts make the same name.

        Raises:
            ValueError: There is no room for a digest.
        """
        whole = self.filler.join(parts)
        is_clear = len(parts) == 1 or (self.filler and tuple(whole.split(self.filler)) == parts)
        if is_clear and self.fits(whole):
            return whole
        separated = "\0".join(parts)
        end = f"{self.filler}{digest_of((separated,))}"
        room = self.limit - len(end)
        if room < 0:
            raise ValueError(f"names of {self.limit} characters have no room for a digest")
        begin = msgspec.structs.replace(self, limit=room).clean(whole)
        return f"{begin}{end}".lstrip(self.edges)


LABEL_VALUE: Final = NameForm(63, "-A-Za-z0-9_.", edges="-_.")
"""The value of a label of Kubernetes, such as a zone."""
