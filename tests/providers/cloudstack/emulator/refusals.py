"""The errors of the emulated CloudStack."""


class Refusal(Exception):
    """An error of the API: its code, which is the HTTP status, too, and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def absent(parameter: str, id_: str) -> str:
    """What the API says of an id that it has never known."""
    return (
        f"Unable to execute API command due to invalid value. Invalid parameter {parameter}"
        f" value={id_} due to incorrect long value format, or entity does not exist or due to"
        " incorrect parameter annotation for the field in api cmd class."
    )
