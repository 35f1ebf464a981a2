"""Makes `types.json` of the vendor's SDK for Go: `python -m tests.providers.baidu.emulator.record`.

Its types say which fields requests and answers have, and of which type each is. The vendor's SDK for
Python has only the requests.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MODULE: Final = "github.com/baidubce/bce-sdk-go@v0.9.200"
FILE: Final = Path(__file__).with_name("types.json")
FILES: Final = {
    "bbc": "services/bbc/model.go",
    "bcc": "services/bcc/api/model.go",
    "blb": "services/blb/model.go",
    "eip": "services/eip/model.go",
    "vpc": "services/vpc/model.go",
    "model": "model/tag.go",
}
USED: Final = {
    "bbc": "InstanceModel ListInstancesResult",
    "bcc": "GetInstanceDetailResult GetVolumeDetailResult InstanceModel ListInstanceResult VolumeModel",
    "blb": """
        AddBackendServersArgs AllListenerModel BLBModel BackendServerModel CreateHTTPListenerArgs
        CreateLoadBalancerArgs CreateLoadBalancerResult CreateTCPListenerArgs CreateUDPListenerArgs
        DeleteListenersArgs DescribeAllListenersResult DescribeBackendServersResult
        DescribeLoadBalancersResult DescribeTCPListenersResult DescribeUDPListenersResult
        PortTypeModel RemoveBackendServersArgs TCPListenerModel UDPListenerModel
        UpdateHTTPListenerArgs UpdateLoadBalancerArgs UpdateTCPListenerArgs UpdateUDPListenerArgs
    """,
    "eip": """
        Billing BindEipArgs CreateEipArgs CreateEipResult EipModel ListEipResult Reservation
        ResizeEipArgs
    """,
    "model": "TagModel",
    "vpc": """
        CreateRouteRuleArgs CreateRouteRuleResult GetRouteRuleResult GetRouteTableResult
        ListSubnetResult RouteRule Subnet
    """,
}

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'^\s+(?:\w+\s+)?(\S+)\s+`json:"([^"]+)"`', re.MULTILINE)
_EMBEDDED = re.compile(r"^\s+(\w+)\s*$", re.MULTILINE)


def fields(text: str, name: str) -> Iterator[tuple[str, list[object]]]:
    """The fields of a struct: JSON's name, Go's type, and whether it may be left out."""
    body = dict(_STRUCT.findall(text))[name]
    for type_, tag in _FIELD.findall(body):
        key, *options = tag.split(",")
        if key != "-":
            yield key, [type_, "omitempty" in options]
    for embedded in _EMBEDDED.findall(body):
        yield from fields(text, embedded)


def main() -> None:
    told = subprocess.run(
        ["go", "mod", "download", "-json", MODULE], check=True, capture_output=True, cwd="/"
    )
    directory = Path(json.loads(told.stdout)["Dir"])
    found = {}
    for package, file in FILES.items():
        text = (directory / file).read_text()
        for name in USED[package].split():
            found[f"{package}.{name}"] = dict(fields(text, name))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    FILE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
