"""How Rancher checks what it is given: by the description of the type, field by field."""

from typing import Any

from .schemas import FIELDS, Field, Json
from .world import Refusal, World

RESERVED = 42


class Checks:
    """The checks of one version; notes what is dropped since nobody can write it."""

    def __init__(self, version: str, world: World, dropped: set[str]) -> None:
        self._version, self._world, self._dropped = version, world, dropped

    def sanitized(self, type_: str, given: Json, *, create: bool) -> Json:
        """What is left of a body.

        Raises:
            Refusal: A value is wrong, or one is missing.
        """
        fields = FIELDS[self._version][type_]
        found: Json = {}
        for name, value in given.items():
            field = fields.get(name)
            if field is None or not (field.create if create else field.update):
                self._dropped.add(f"{type_}.{name}")
                continue
            if value is None and not field.nullable:
                raise Refusal(422, "NotNullable", name)
            found[name] = None if value is None else self._value(name, field, field.type, value)
        if create:
            for name, field in fields.items():
                if field.required and found.get(name) is None:
                    raise Refusal(422, "MissingRequired", name)
                if field.type == "enum" and name == "protocol":
                    found.setdefault(name, "http")
        return found

    def _value(self, name: str, field: Field, type_: str, value: Any) -> Any:
        if type_.startswith("array["):
            many = value if isinstance(value, list) else [value]
            return [self._value(name, field, type_[6:-1], one) for one in many]
        if type_.startswith("reference["):
            if str(value) not in self._world.objects:
                raise Refusal(422, "InvalidReference", name)
            return str(value)
        if type_ in FIELDS[self._version]:
            if not isinstance(value, dict):
                raise Refusal(422, "InvalidFormat", name)
            return self.sanitized(type_, value, create=True)
        if type_ == "int":
            return self._number(name, field, value)
        if type_ in {"string", "enum"}:
            return self._text(name, field, value)
        form = {"boolean": bool, "map[json]": dict, "map[string]": dict}.get(type_, object)
        if not isinstance(value, form):
            raise Refusal(422, "InvalidFormat", name)
        return value

    def _number(self, name: str, field: Field, value: Any) -> int:
        if not str(value).lstrip("-").isdecimal():
            raise Refusal(422, "InvalidFormat", name)
        number = int(value)
        if field.low is not None and number < field.low:
            raise Refusal(422, "MinLimitExceeded", name)
        if field.high is not None and number > field.high:
            raise Refusal(422, "MaxLimitExceeded", name)
        return number

    def _text(self, name: str, field: Field, value: Any) -> str:
        text = str(value)
        if field.options and text not in field.options:
            raise Refusal(422, "InvalidOption", name)
        if field.low is not None and len(text) < field.low:
            raise Refusal(422, "MinLengthExceeded", name)
        if field.high is not None and len(text) > field.high:
            raise Refusal(422, "MaxLengthExceeded", name)
        if field.letters and any(not one.isalnum() and one != "-" for one in text):
            raise Refusal(422, "InvalidCharacters", name)
        return text


def check_service(type_: str, version: str, fields: Json) -> None:
    """Check what Rancher checks of services beside their types.

    Raises:
        Refusal: Names the field.
    """
    if fields.get("externalIpAddresses") and fields.get("hostname"):
        raise Refusal(422, "InvalidOption", "externalIps and hostname are mutually exclusive")
    for port in (fields.get("launchConfig") or {}).get("ports") or ():
        numbers, _, transport = str(port).partition("/")
        parts = numbers.split(":")
        if transport not in {"", "tcp", "udp"} or not all(one.isdecimal() for one in parts):
            raise Refusal(422, "InvalidFormat", "ports")
        if version == "v1" and int(parts[0]) == RESERVED and type_ == "loadBalancerService":
            raise Refusal(422, "InvalidOption", f"Port {RESERVED} is reserved")
    for rule in (fields.get("lbConfig") or {}).get("portRules") or ():
        if not rule.get("serviceId") and not rule.get("selector"):
            raise Refusal(422, "MissingRequired", "serviceId")
        if rule.get("serviceId") and rule.get("selector"):
            raise Refusal(422, "InvalidOption", "Can't specify both selector and serviceId")
        if rule.get("serviceId") and rule.get("targetPort") is None:
            raise Refusal(422, "MissingRequired", "targetPort")
        if rule.get("sourcePort") == RESERVED:
            raise Refusal(422, "InvalidOption", f"Port {RESERVED} is reserved")
