"""Make provider ids that name no machine, of one that does."""

from typing import Final

_HEX: Final = "0123456789abcdef"
_OTHER: Final = str.maketrans(_HEX, _HEX[::-1])


def cut_off(id_: str) -> list[str]:
    """Return wrong forms of a provider id: without its last part, its last two, with blanks."""
    scheme, _, rest = id_.partition("://")
    parts = rest.split("/")
    kept = ["/".join((*parts[:count], "")) for count in range(1, len(parts))]
    return [f"{scheme}://{one}" for one in ("", " ", "/", *kept)]


def never_given(id_: str) -> str:
    """Return an id of the form of a provider id that no machine has had: with other hex digits."""
    place, slash, name = id_.rpartition("/")
    return f"{place}{slash}{name.translate(_OTHER)}"
