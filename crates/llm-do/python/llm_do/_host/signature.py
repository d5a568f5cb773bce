"""Plain functions as tools: their signatures as JSON Schema, and JSON as their arguments.

Knows the types that need no library. Whatever else a signature has is PydanticAI's business.
"""

from __future__ import annotations

import enum
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from llm_do._host.function import REQUIRED, docstring_of, parameters_of
from llm_do.runtime import CallContext

Convert = Callable[[Any, str], Any]


class Unsupported(Exception):
    """A type that only PydanticAI knows what to do with."""


class Invalid(Exception):
    """Arguments that do not fit; the message is what the model reads."""


class Signature:
    def __init__(
        self,
        schema: dict[str, Any],
        description: str,
        takes_context: bool,
        fields: dict[str, Convert],
        required: tuple[str, ...],
    ) -> None:
        self.schema, self.description, self.takes_context = schema, description, takes_context
        self.fields, self.required = fields, required

    def arguments(self, given: Any) -> dict[str, Any]:
        return _object(given, "", self.fields, self.required)


def signature_of(function: Callable[..., Any]) -> Signature:
    """Raises `Unsupported` for what plain Python does not say."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise Unsupported(str(error)) from error
    parameters = parameters_of(function)
    takes_context = bool(parameters) and _is_context(hints.get(parameters[0].name))
    summary, described = docstring(docstring_of(function))
    properties: dict[str, Any] = {}
    fields: dict[str, Convert] = {}
    required = []
    for parameter in parameters[1 if takes_context else 0 :]:
        if parameter.unnamed is not None:
            raise Unsupported(f"parameter {parameter.unnamed}")
        if parameter.name not in hints:
            raise Unsupported(f"`{parameter.name}` has no type")
        schema, convert = shape(hints[parameter.name], ())
        if parameter.name in described:
            schema = {**schema, "description": described[parameter.name]}
        if parameter.default is REQUIRED:
            required.append(parameter.name)
        elif _is_plain(parameter.default):
            schema = {**schema, "default": parameter.default}
        properties[parameter.name] = schema
        fields[parameter.name] = convert
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Signature(schema, summary, takes_context, fields, tuple(required))


def _is_context(kind: Any) -> bool:
    """Whether a parameter is what code sees of its caller, by any of its names."""
    if isinstance(kind, type) and issubclass(kind, CallContext):
        return True
    workers = sys.modules.get("llm_do.workers")
    return workers is not None and kind is workers.WorkerContext


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, bool)) or (isinstance(value, float) and value == value)


def shape(kind: Any, inside: tuple[Any, ...]) -> tuple[dict[str, Any], Convert]:
    """The JSON Schema of a type, and how a JSON value becomes one."""
    if kind is Any or kind is object:
        return {}, lambda value, where: value
    if kind in _SCALARS:
        return _scalar(*_SCALARS[kind])
    if kind is float:
        return {"type": "number"}, _number
    # Whoever names it has imported it.
    pathlib = sys.modules.get("pathlib")
    if pathlib is not None and kind is pathlib.Path:
        schema, convert = _scalar("string", str, "a text")
        return schema, lambda value, where: pathlib.Path(convert(value, where))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        schema, convert = shape(arguments[0], inside)
        texts = [note for note in arguments[1:] if isinstance(note, str)]
        if len(texts) != len(arguments) - 1:
            raise Unsupported(f"the annotation {kind!r}")
        return ({**schema, "description": " ".join(texts)}, convert)
    if origin is typing.Literal:
        if not all(isinstance(value, (str, int, bool, type(None))) for value in arguments):
            raise Unsupported(f"the type {kind!r}")
        return {"enum": list(arguments)}, _one_of(list(arguments))
    if origin in (typing.Union, types.UnionType):
        return _union([shape(argument, inside) for argument in arguments])
    if kind in (list, set, frozenset) or origin in (list, set, frozenset):
        item = shape(arguments[0], inside) if arguments else shape(Any, inside)
        return _list(origin or kind, item)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list(tuple, shape(arguments[0], inside))
    if kind is dict or origin is dict:
        if arguments and arguments[0] is not str:
            raise Unsupported(f"the type {kind!r}")
        return _dict(shape(arguments[1], inside) if arguments else shape(Any, inside))
    if isinstance(kind, type) and kind not in inside:
        if issubclass(kind, enum.Enum):
            members = {member.value: member for member in kind}
            choose = _one_of(list(members))
            return {"enum": list(members)}, lambda value, where: members[choose(value, where)]
        if hasattr(kind, "__dataclass_fields__") and not hasattr(kind, "__pydantic_validator__"):
            return _dataclass(kind, (*inside, kind))
        if typing.is_typeddict(kind):
            return _typed_dict(kind, (*inside, kind))
    raise Unsupported(f"the type {kind!r}")


def _scalar(name: str, kind: type, words: str) -> tuple[dict[str, Any], Convert]:
    def convert(value: Any, where: str) -> Any:
        # `True` is an int for Python, and for nobody else.
        if type(value) is kind:
            return value
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        raise Invalid(f"{_at(where)}{_shown(value)} is not {words}")

    return {"type": name}, convert


_SCALARS: dict[Any, tuple[str, type, str]] = {
    str: ("string", str, "a text"),
    int: ("integer", int, "a whole number"),
    bool: ("boolean", bool, "true or false"),
    type(None): ("null", type(None), "null"),
}


def _number(value: Any, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise Invalid(f"{_at(where)}{_shown(value)} is not a number")


def _one_of(values: list[Any]) -> Convert:
    def convert(value: Any, where: str) -> Any:
        for known in values:
            if type(known) is type(value) and known == value:
                return value
        raise Invalid(f"{_at(where)}{_shown(value)} is none of {', '.join(map(_shown, values))}")

    return convert


def _union(shapes: list[tuple[dict[str, Any], Convert]]) -> tuple[dict[str, Any], Convert]:
    def convert(value: Any, where: str) -> Any:
        complaints = []
        for _, one in shapes:
            try:
                return one(value, where)
            except Invalid as invalid:
                complaints.append(str(invalid))
        raise Invalid("; ".join(complaints))

    return {"anyOf": [schema for schema, _ in shapes]}, convert


def _list(kind: Any, item: tuple[dict[str, Any], Convert]) -> tuple[dict[str, Any], Convert]:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise Invalid(f"{_at(where)}{_shown(value)} is not a list")
        return kind(item[1](one, f"{where}/{index}") for index, one in enumerate(value))

    return {"type": "array", "items": item[0]}, convert


def _dict(item: tuple[dict[str, Any], Convert]) -> tuple[dict[str, Any], Convert]:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise Invalid(f"{_at(where)}{_shown(value)} is not an object")
        return {key: item[1](one, f"{where}/{key}") for key, one in value.items()}

    return {"type": "object", "additionalProperties": item[0]}, convert


def _fields(kind: Any, names: dict[str, bool], inside: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Convert], tuple[str, ...]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    shapes = {name: shape(hints[name], inside) for name in names}
    required = tuple(name for name, is_required in names.items() if is_required)
    schema = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in shapes.items()},
        "required": list(required),
        "additionalProperties": False,
    }
    return schema, {name: convert for name, (_, convert) in shapes.items()}, required


def _dataclass(kind: Any, inside: tuple[Any, ...]) -> tuple[dict[str, Any], Convert]:
    import dataclasses

    missing = dataclasses.MISSING
    names = {
        field.name: field.default is missing and field.default_factory is missing
        for field in dataclasses.fields(kind)
        if field.init
    }
    schema, fields, required = _fields(kind, names, inside)
    return schema, lambda value, where: kind(**_object(value, where, fields, required))


def _typed_dict(kind: Any, inside: tuple[Any, ...]) -> tuple[dict[str, Any], Convert]:
    names = {name: name in kind.__required_keys__ for name in kind.__annotations__}
    schema, fields, required = _fields(kind, names, inside)
    return schema, lambda value, where: _object(value, where, fields, required)


def _object(value: Any, where: str, fields: dict[str, Convert], required: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(f"{_at(where)}{_shown(value)} is not an object")
    for name in required:
        if name not in value:
            raise Invalid(f"{_at(where)}`{name}` is missing")
    for name in value:
        if name not in fields:
            raise Invalid(f"{_at(where)}there is no `{name}`; there are: {', '.join(fields) or 'none'}")
    return {name: fields[name](one, f"{where}/{name}") for name, one in value.items()}


def _at(where: str) -> str:
    return f"`{where}`: " if where else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


# Compiled where they are needed: most projects have no such docstring.
_SECTION = r"^(Args|Arguments|Parameters|Params):?\s*$"
_OTHER_SECTION = r"^(Returns|Return|Raises|Yields|Examples?|Notes?|See Also)\b:?\s*$"
_GOOGLE = r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$"
_NUMPY = r"^(\w+)\s*(?::.*)?$"
_SPHINX = r"^\s*:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$"


def docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the whole, and of each parameter (Google, NumPy and Sphinx style)."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section, current = None, None
    lines = text.splitlines()
    if len(lines) <= 1:
        return text.strip(), {}
    for index, line in enumerate(lines):
        underlined = index + 1 < len(lines) and set(lines[index + 1].strip()) == {"-"}
        sphinx = re.match(_SPHINX, line)
        if sphinx:
            section, current = "sphinx", sphinx[1]
            described[current] = sphinx[2].strip()
        elif re.match(_SECTION, line):
            section, current = ("numpy" if underlined else "google"), None
        elif re.match(_OTHER_SECTION, line) or re.match(r"^\s*:(return|returns|rtype|raises)\b", line):
            section, current = "other", None
        elif section is None:
            summary.append(line)
        elif section == "google" and (google := re.match(_GOOGLE, line)) and (current is None or _indent(line) <= _indent_of(lines, current)):
            current = google[1]
            described[current] = google[2].strip()
        elif section == "numpy" and not line.startswith(" ") and (numpy := re.match(_NUMPY, line)) and set(line.strip()) != {"-"}:
            current = numpy[1]
            described[current] = ""
        elif current is not None and line.strip() and section != "other":
            described[current] = f"{described[current]} {line.strip()}".strip()
    return "\n".join(summary).strip(), {name: words for name, words in described.items() if words}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indent_of(lines: list[str], name: str) -> int:
    return next((_indent(line) for line in lines if (match := re.match(_GOOGLE, line)) and match[1] == name), 0)
