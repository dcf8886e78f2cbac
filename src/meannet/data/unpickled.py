"""The python version of CIFAR-10's files (D), which are pickles, read without executing anything.

A pickle is a program for a stack machine. This is that machine with the few instructions these files consist of; the
three names they import stand for themselves and are never looked up. Anything else is refused.
"""

import pickletools
from typing import Any

import numpy as np

from meannet.data import DataError

RECONSTRUCT, ARRAY, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
IMPORTS = (RECONSTRUCT, ARRAY, DTYPE)
MARK = object()
VALUES = ("SHORT_BINSTRING", "BINSTRING", "BININT", "BININT1", "BININT2")
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Import(str):
    """The name of something that a file imports; nothing is imported."""


class _Array:
    """An array on its way: made empty by REDUCE, filled by BUILD."""

    content: np.ndarray


def batch(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (cases, values) and labels (cases,), both uint8, of a file's dictionary; DataError for anything else."""
    try:
        found = _run(content)
        pixels, labels = found["data"].content, _of(list, found["labels"])
        if pixels.ndim != 2 or len(labels) != len(pixels):
            raise ValueError("pixels and labels do not go together")
        if any(type(label) is not int or not 0 <= label < 256 for label in labels):
            raise ValueError("a label is no number of a class")
        return pixels, np.array(labels, np.uint8)
    # Whatever a file of another kind leads to: too few values on the stack, values of another kind, unknown codes.
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, UnicodeDecodeError) as error:
        raise DataError(f"not a CIFAR-10 batch ({error})") from None


def _run(content: bytes) -> dict[str, Any]:
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, place in pickletools.genops(content):
        name = opcode.name
        if name in VALUES:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            stack.append(MARK)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in TUPLES:
            stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
        elif name == "TUPLE":
            stack.append(tuple(_since_mark(stack)))
        elif name == "APPENDS":
            values = _since_mark(stack)
            _of(list, stack[-1]).extend(values)
        elif name == "SETITEMS":
            values = _since_mark(stack)
            _of(dict, stack[-1]).update(zip(values[::2], values[1::2], strict=True))
        elif name == "GLOBAL" and argument in IMPORTS:
            stack.append(_Import(argument))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_reduced(stack.pop(), arguments))
        elif name == "BUILD":
            state = stack.pop()
            _build(stack[-1], state)
        elif name == "STOP":
            if place is None or place + 1 != len(content):
                raise ValueError("bytes follow its end")
            return _of(dict, stack.pop())
        elif name != "PROTO":
            raise ValueError(f"its instruction {name} at byte {place} is none that these files need")
    raise ValueError("it does not end")


def _reduced(called: Any, arguments: Any) -> Any:
    if isinstance(called, _Import) and called == RECONSTRUCT and arguments[0] == ARRAY:
        return _Array()
    if isinstance(called, _Import) and called == DTYPE and arguments[0] == "u1":
        return _Import(DTYPE)
    raise ValueError("it calls something that is not an array of bytes")


def _build(made: Any, state: Any) -> None:
    if isinstance(made, _Import) and made == DTYPE:
        return  # byte order and the like, which bytes have none of
    _, shape, dtype, by_columns, content = state
    if not isinstance(dtype, _Import) or dtype != DTYPE or by_columns is not False:
        raise ValueError("its array is not one of bytes, row by row")
    _of(_Array, made).content = np.frombuffer(content.encode("latin-1"), np.uint8).reshape(shape)


def _since_mark(stack: list[Any]) -> list[Any]:
    place = len(stack) - 1 - stack[::-1].index(MARK)
    values = stack[place + 1 :]
    del stack[place:]
    return values


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__.strip('_')} should be")
    return value
