"""Read quantities of the Kubernetes API, such as 1.5Gi, 100m and 1e3. Pure."""

import re
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(
    r"([+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40}))([A-Za-z]{0,2}|[eE][+-]?[0-9]{1,3})"
)
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def quantity(text: str) -> Decimal:
    """Return the value of a quantity.

    Raises:
        ValueError: The text is no quantity.
    """
    form = _FORM.fullmatch(text)
    if form is not None:
        number, suffix = Decimal(form[1]), form[2]
        if suffix in _DECIMAL:
            return number.scaleb(_DECIMAL[suffix])
        if suffix in _BINARY:
            return number * Decimal(2 ** _BINARY[suffix])
        if suffix[1:].lstrip("+-").isdigit():
            return number.scaleb(int(suffix[1:]))
    raise ValueError(f"{text!r} is not a quantity such as 10Gi")
