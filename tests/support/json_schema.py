"""Whether a JSON value fits a schema: the keywords of docs/grammar.md, written for tests and independent of the grammar library.
Standard library only. A keyword that is not known here is an error, never overlooked."""
import datetime
import ipaddress
import json
import re
import uuid

IGNORED = {"$schema", "$defs", "title", "description", "default"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def strict_loads(text):
    """json.loads without what Python allows beyond JSON: NaN, Infinity, a name twice."""
    def no_constant(name):
        raise ValueError(f"{name} is no JSON")

    def once(pairs):
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name stands twice in an object")
        return dict(pairs)
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=once)


def has_type(value, name):
    if name in ("number", "integer"):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and (name == "number" or float(value).is_integer())
    return isinstance(value, TYPES[name])


def same(a, b):
    """Equal in JSON's sense: true is not 1."""
    return type(a) is type(b) and a == b if isinstance(a, bool) or isinstance(b, bool) else a == b


def fits_format(text, name):
    try:
        if name == "date":
            datetime.date.fromisoformat(text)
        elif name == "date-time":
            datetime.datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
        elif name == "uuid":
            uuid.UUID(text)
        elif name == "ipv4":
            ipaddress.IPv4Address(text)
        elif name == "email":
            return re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None
        else:
            raise KeyError(f"format {name}")
    except ValueError:
        return False
    return True


class Validator:
    def __init__(self, root):
        self.root = root

    def faults(self, value, schema=None, at="#"):
        """What is wrong with the value, one text each; nothing if it fits."""
        schema = self.root if schema is None else schema
        if isinstance(schema, bool):
            return [] if schema else [f"{at}: nothing may stand here"]
        found = []
        for keyword, argument in schema.items():
            if keyword not in IGNORED:
                found += self.keyword(keyword, argument, value, schema, at)
        return found

    def keyword(self, keyword, argument, value, schema, at):
        check = getattr(self, "of_" + keyword.lstrip("$"), None)
        if check is None:
            raise KeyError(f"{at}: the keyword {keyword} is not known to this validator")
        return check(argument, value, schema, at)

    @staticmethod
    def unless(good, at, text):
        return [] if good else [f"{at}: {text}"]

    def of_type(self, names, value, _, at):
        names = [names] if isinstance(names, str) else names
        return self.unless(any(has_type(value, name) for name in names), at, f"{value!r} is no {names}")

    def of_enum(self, values, value, _, at):
        return self.unless(any(same(value, one) for one in values), at, f"{value!r} is none of {values}")

    def of_const(self, one, value, _, at):
        return self.unless(same(value, one), at, f"{value!r} is not {one!r}")

    def of_ref(self, pointer, value, _, at):
        target = self.root
        for part in pointer.removeprefix("#").strip("/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")] if part else target
        return self.faults(value, target, at)

    def of_anyOf(self, schemas, value, _, at):
        return self.unless(any(not self.faults(value, one, at) for one in schemas), at, f"{value!r} fits no alternative")

    def of_allOf(self, schemas, value, _, at):
        return [fault for one in schemas for fault in self.faults(value, one, at)]

    def of_properties(self, properties, value, _, at):
        if not isinstance(value, dict):
            return []
        return [fault for name, one in properties.items() if name in value for fault in self.faults(value[name], one, f"{at}/{name}")]

    def of_required(self, names, value, _, at):
        return self.unless(not isinstance(value, dict) or set(names) <= set(value), at, f"of {names} something is missing")

    def of_additionalProperties(self, argument, value, schema, at):
        if not isinstance(value, dict):
            return []
        others = set(value) - set(schema.get("properties", {}))
        return [fault for name in sorted(others) for fault in self.faults(value[name], argument, f"{at}/{name}")]

    def of_prefixItems(self, schemas, value, _, at):
        if not isinstance(value, list):
            return []
        return [fault for i, (one, item) in enumerate(zip(schemas, value)) for fault in self.faults(item, one, f"{at}/{i}")]

    def of_items(self, argument, value, schema, at):
        if not isinstance(value, list):
            return []
        first = len(schema.get("prefixItems", []))
        return [fault for i, item in enumerate(value[first:], first) for fault in self.faults(item, argument, f"{at}/{i}")]

    def of_minItems(self, least, value, _, at):
        return self.unless(not isinstance(value, list) or len(value) >= least, at, f"fewer than {least} items")

    def of_maxItems(self, most, value, _, at):
        return self.unless(not isinstance(value, list) or len(value) <= most, at, f"more than {most} items")

    def of_minLength(self, least, value, _, at):
        return self.unless(not isinstance(value, str) or len(value) >= least, at, f"shorter than {least}")

    def of_maxLength(self, most, value, _, at):
        return self.unless(not isinstance(value, str) or len(value) <= most, at, f"longer than {most}")

    def of_pattern(self, pattern, value, _, at):
        return self.unless(not isinstance(value, str) or re.search(pattern, value) is not None, at, f"{value!r} does not match {pattern}")

    def of_format(self, name, value, _, at):
        return self.unless(not isinstance(value, str) or fits_format(value, name), at, f"{value!r} is no {name}")

    def of_minimum(self, least, value, _, at):
        return self.unless(not has_type(value, "number") or value >= least, at, f"{value!r} is below {least}")

    def of_maximum(self, most, value, _, at):
        return self.unless(not has_type(value, "number") or value <= most, at, f"{value!r} is above {most}")
