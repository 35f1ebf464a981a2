"""The role of the provider `cloudstack`: the least rights, made from the table of its commands.

`python tools/cloudstack_role.py` prints it; `make manifests` writes it to
`deploy/cloudstack/role.csv`, as CloudStack's own "Import role" reads it.
"""

import csv
import io

from proreus.providers.cloudstack.operations import COMMANDS


def document() -> str:
    """Return the rules of the role, as they are written to their file: all else is denied."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("rule", "permission", "description"))
    table.writerows(
        (command, "allow", use.value)
        for use, names in COMMANDS.items()
        for command in sorted(names)
    )
    table.writerow(("*", "deny", "everything else"))
    return text.getvalue()


if __name__ == "__main__":
    print(document(), end="")
