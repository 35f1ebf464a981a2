"""What the guides of clouds say in their tables, to compare with what the code knows."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


class Guide:
    """The guide of one cloud."""

    def __init__(self, cloud: str) -> None:
        self.text = (GUIDES / f"{cloud}.md").read_text()

    def names(self, header: str) -> list[str]:
        """The first cells, where they are code, of the table that begins so."""
        matches = (re.match(r"\| `([^`]+)` \|", line) for line in self._lines(header))
        return [match[1] for match in matches if match]

    def rows(self, header: str) -> list[tuple[str, ...]]:
        """All cells of the table that begins so, without the marks of code."""
        return [
            tuple(cell.strip(" `") for cell in line.strip("|").split("|"))
            for line in self._lines(header)
        ]

    def _lines(self, header: str) -> list[str]:
        _, _, rest = self.text.partition(f"\n| {header} |")
        return rest.partition("\n\n")[0].splitlines()[2:]


class Watched(Mapping[str, str]):
    """Annotations, by their names behind a prefix, that know which of them were looked for.

    `outside` are those without the prefix.
    """

    def __init__(self, prefix: str, **values: str) -> None:
        self.prefix = prefix
        self.values_given = values
        self.read: set[str] = set()
        self.outside: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if not name.startswith(self.prefix):
            self.outside.add(name)
        short = name.removeprefix(self.prefix)
        self.read.add(short)
        return self.values_given[short]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_given)

    def __len__(self) -> int:
        return len(self.values_given)


def keys(*sections: type[msgspec.Struct]) -> list[str]:
    """The keys of sections of a cloud-config."""
    return [field.encode_name for section in sections for field in msgspec.structs.fields(section)]


def exposed(types: Mapping[str, str]) -> set[str]:
    """The names under which metrics of these types are scraped."""
    return {f"{name}_total" if type_ == "counter" else name for name, type_ in types.items()}
