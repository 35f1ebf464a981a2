"""Makes `model.json` of NSX-T's SDK for Go: `python -m tests.providers.vsphere.nsxt.emulator.record`.

The SDK is generated of the vendor's description of the API. Of the operations that the emulator
answers it has method, path, parameters and types; of types their fields, which are needed, their
formats, and the values of enumerations.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

MODULE: Final = "github.com/vmware/vsphere-automation-sdk-go/services/nsxt@v0.12.0"
FILES: Final = (
    "infra/LbServices", "infra/LbVirtualServers", "infra/LbPools", "infra/LbMonitorProfiles",
    "infra/LbAppProfiles", "infra/LbPersistenceProfiles", "infra/IpPools",
    "infra/ip_pools/IpAllocations", "infra/ip_pools/IpSubnets", "infra/Tier1s",
    "infra/tier_1s/StaticRoutes", "infra/Segments", "infra/Domains", "infra/domains/Groups",
    "infra/realized_state/RealizedEntities", "search/Query",
)  # fmt: skip
ANSWERED: Final = ("Get", "List", "Patch", "Update", "Delete")
BASE: Final = "PolicyConfigResource"
LEFT_OUT: Final = frozenset(
    (
        "children", "rules", "client_ssl_profile_binding", "server_ssl_profile_binding",
        "federation_config", "intersite_config", "qos_profile", "route_advertisement_rules",
        "address_bindings", "advanced_config", "bridge_profiles", "extra_configs", "l2_extension",
        "subnets", "extended_expression", "_links", "_self",
    )
)  # fmt: skip
"""Fields that no part of Kubernetes needs; the emulator refuses them, but for those it makes."""
FILE: Final = Path(__file__).with_name("model.json")
_FUNCTION = re.compile(
    r"func (\w+)BindingType\(\) vapiBindings_\.BindingType \{\n(.*?)\n\}", re.DOTALL
)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r'^\s*fields\["(\w+)"\] = (.*)$', re.MULTILINE)
_NAME = re.compile(r'^\s*fieldNameMap\["(\w+)"\] = "(\w+)"$', re.MULTILINE)
_CONSTANT = re.compile(r'^const (\w+) = "([^"]*)"$', re.MULTILINE)
_METADATA = re.compile(
    r"func (\w+?)(Get|List|Patch|Update|Delete)RestMetadata\(\).*?\{\n(.*?)\n\}", re.DOTALL
)
_CALL = re.compile(
    r'^\t\t"(\w*)",\n\t\t"(GET|PUT|PATCH|DELETE|POST)",\n\t\t"([^"]+)",', re.MULTILINE
)
_PLAIN: Final = {"String": "string", "Integer": "integer", "Boolean": "boolean", "Double": "number"}


def kind(text: str) -> str:
    """A binding as a word: `string`, `list:Tag`, `one-of:LBSnatTranslation`."""
    text = text.removeprefix("vapiBindings_.")
    if text.startswith("NewOptionalType("):
        return kind(text.removeprefix("NewOptionalType("))
    if plain := re.match(r"New(String|Integer|Boolean|Double)Type\(", text):
        return _PLAIN[plain[1]]
    if text.startswith("NewListType("):
        return f"list:{kind(text.removeprefix('NewListType('))}"
    if reference := re.match(r"NewReferenceType\((?:\w+\.)?(\w+)BindingType\)", text):
        return reference[1]
    if dynamic := re.search(r"NewReferenceType\((?:\w+\.)?(\w+)BindingType\)", text):
        return f"one-of:{dynamic[1]}"
    if text.startswith("NewDynamicStructType(nil)"):
        return "object"
    raise AssertionError(text)


class Model:
    """The types of the SDK."""

    def __init__(self, source: str) -> None:
        self._functions = dict(_FUNCTION.findall(source))
        self._structs = dict(_STRUCT.findall(source))
        self._constants = dict(_CONSTANT.findall(source))

    def type(self, name: str) -> Json:
        """A type with its fields."""
        body = self._functions[name]
        names = dict(_NAME.findall(body))
        fields: Json = {}
        for field, binding in _ENTRY.findall(body):
            if field in LEFT_OUT:
                continue
            fields[field] = {"type": kind(binding)}
            if not binding.startswith("vapiBindings_.NewOptionalType("):
                fields[field]["required"] = True
            fields[field] |= self._said(name, names[field])
        return fields

    def _said(self, name: str, field: str) -> Json:
        """What the comment of a field says: its format and the values that it may have."""
        found = re.search(rf"((?:^\t//[^\n]*\n)*)^\t{field}\s", self._structs[name], re.MULTILINE)
        assert found, (name, field)
        said: Json = {}
        if form := re.search(r"format: ([a-z0-9-]+)", found[1]):
            said["format"] = form[1]
        constants = re.findall(r"^\t// \* \w+#(\w+)$", found[1], re.MULTILINE)
        if constants:
            said["values"] = [self._constants[one] for one in constants]
        return said

    def closure(self, names: set[str]) -> Json:
        """Types with all that they consist of."""
        found: Json = {}
        left = sorted(names)
        while left:
            name = left.pop()
            if name in found:
                continue
            found[name] = self.type(name)
            left += (one for one in self._parts(found[name]) if one in self._functions)
        return {name: self._shorter(name, one) for name, one in found.items()}

    def _shorter(self, name: str, fields: Json) -> Json:
        """A type without the fields that it has of the type of all configuration."""
        common = self.type(BASE)
        if name == BASE or not common.keys() <= fields.keys():
            return fields
        own = {field: said for field, said in fields.items() if common.get(field) != said}
        return {"extends": BASE, **own}

    def _parts(self, fields: Mapping[str, Any]) -> Iterator[str]:
        for field, said in fields.items():
            yield said["type"].rpartition(":")[2]
            if field in {"resource_type", "type"}:
                # The values that tell kinds of one type apart are the names of their types.
                yield from said.get("values", ())


def operations(directory: Path) -> Iterator[Json]:
    """The operations that the emulator answers."""
    for file in FILES:
        source = (directory / f"{file}Types.go").read_text()
        for _, verb, body in _METADATA.findall(source):
            parameter, method, path = _CALL.findall(body)[0]
            fields = dict(_ENTRY.findall(body))
            output = re.search(
                rf"func \w+{verb}OutputType\(\) vapiBindings_\.BindingType \{{\n\treturn (.*)\n",
                source,
            )
            assert output
            one: Json = {"method": method, "path": _snake(path)}
            query = dict(re.findall(r'queryParams\["(\w+)"\] = "(\w+)"', body))
            one["query"] = {name: kind(fields[field]) for field, name in sorted(query.items())}
            one["needed"] = [
                name for field, name in sorted(query.items())
                if not fields[field].startswith("vapiBindings_.NewOptionalType(")
            ]  # fmt: skip
            if parameter:
                one["body"] = kind(fields[parameter])
            if "NewVoidType" not in output[1]:
                one["answer"] = kind(output[1])
            yield one


def _snake(path: str) -> str:
    return re.sub(
        r"\{(\w+)\}", lambda m: "{" + re.sub(r"(?<!^)([A-Z])", r"_\1", m[1]).lower() + "}", path
    )


def main() -> None:
    told = subprocess.run(
        ["go", "mod", "download", "-json", MODULE], check=True, capture_output=True, cwd="/"
    )
    directory = Path(json.loads(told.stdout)["Dir"])
    model = Model((directory / "model" / "ModelPackageTypes.go").read_text())
    found = sorted(operations(directory), key=lambda one: (one["path"], one["method"]))
    names = {
        one[part].rpartition(":")[2] for one in found for part in ("body", "answer") if part in one
    }
    types = model.closure({*names, BASE, "ApiError"})
    lines = [",\n".join(json.dumps(one) for one in found)]
    lines += [
        ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(types.items()))
    ]
    FILE.write_text(f'{{"operations": [\n{lines[0]}\n],\n"types": {{\n{lines[1]}\n}}}}\n')


if __name__ == "__main__":
    main()
