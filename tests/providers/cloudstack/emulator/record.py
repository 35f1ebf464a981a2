"""Makes `apis.json` of CloudStack's description of its API: `python -m …emulator.record`.

The description, `listApis`, is in CloudStack's SDK for Go, from where it is read with Go's tools.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from proreus.providers.cloudstack.operations import ALL

MODULE: Final = "github.com/apache/cloudstack-go/v2@v2.19.0"
"""That of CloudStack 4.22."""
OFFICIAL: Final = frozenset({"listManagementServersMetrics", "listNetworkACLLists", "listTags"})
"""What official code asks for besides."""
FILE: Final = Path(__file__).with_name("apis.json")


def reduced(api: dict[str, Any]) -> dict[str, Any]:
    """What the emulator needs of a command: no texts."""
    return {
        "async": api["isasync"],
        "params": {
            one["name"]: [one["type"], one["required"], one.get("length", 0), one.get("since", "")]
            for one in sorted(api["params"], key=lambda one: str(one["name"]))
        },
        "fields": sorted({one["name"] for one in api["response"] if "name" in one}),
    }


def main() -> None:
    told = subprocess.run(
        ["go", "mod", "download", "-json", MODULE], check=True, capture_output=True, cwd="/"
    )
    file = Path(json.loads(told.stdout)["Dir"]) / "generate" / "listApis.json"
    known = {one["name"]: one for one in json.loads(file.read_text())["api"]}
    kept = {name: reduced(known[name]) for name in sorted(ALL | OFFICIAL)}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(api)}" for name, api in kept.items())
    FILE.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    main()
