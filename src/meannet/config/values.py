"""Values of settings: as the command line takes them, and as JSON holds them."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal


def text_of(value: Any) -> str:
    """A setting as `--set` takes it."""
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return ";".join(text_of(v) for v in value)
        return ",".join(text_of(v) for v in value) or "none"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def parse(kind: Any, text: str, path: str) -> Any:
    """`text` from the command line as a value of type `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if text == "none" else parse(arguments[0], text, path)
    if origin is Literal:
        if text not in arguments:
            raise ValueError(none_of(path, text, arguments))
        return text
    if origin is tuple:
        inner = arguments[0]
        separator = ";" if typing.get_origin(inner) is tuple else ","
        pieces = (
            [piece for piece in text.split(separator) if piece.strip()] if text != "none" or separator == ";" else []
        )
        return tuple(parse(inner, piece.strip(), path) for piece in pieces)
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{path} must be true or false, not {text!r}")
        return text == "true"
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f"{path} must be {wanted}, not {text!r}") from None


def to_json(value: Any) -> Any:
    """Plain JSON values; infinity, which JSON lacks, becomes the string "inf"."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_json(v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in value]
    return "inf" if value == math.inf else value


def build(kind: Any, value: Any, path: str) -> Any:
    """`value` from JSON as a value of type `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{path} must be an object, not {value!r}")
        hints = typing.get_type_hints(kind)
        for name in value:
            if name not in hints:
                raise ValueError(f"unknown field {path}.{name}; {nearest(name, hints)}")
        try:
            return kind(**{name: build(hints[name], v, f"{path}.{name}") for name, v in value.items()})
        except TypeError as error:
            raise ValueError(f"{path}: {str(error).split(') ', 1)[-1]}") from None
    if origin is types.UnionType:
        return None if value is None else build(arguments[0], value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{path} must be a list, not {value!r}")
        return tuple(build(arguments[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin is Literal:
        return parse(kind, str(value), path)
    if kind is float and value == "inf":
        return math.inf
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return parse(kind, str(value), path)
    if type(value) is not kind:
        raise ValueError(f"{path} must be {kind.__name__}, not {value!r}")
    return value


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say about an unknown name: the closest match, or all that there is."""
    known = list(known)
    begun = [one for one in known if one.startswith(name)][:3] if name else []
    close = begun or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there is {', '.join(known)}"


def none_of(name: str, value: str, known: Iterable[str]) -> str:
    """What to say about a value that is none of a few."""
    known = list(known)
    hint = nearest(value, known)
    return f"{name} must be one of {', '.join(known)}, not {value!r}" + f"; {hint}" * hint.startswith("did")
