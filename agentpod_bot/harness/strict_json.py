"""JSON bodies from outside, read so that no two readers can read them differently (RFC 8259, RFC 7493)."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from agentpod_bot.errors import Invalid, MalformedJson

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_core import ErrorDetails

Loc = tuple[str | int, ...]
_Place = tuple["_Place | None", str | int]
Model = TypeVar("Model", bound=BaseModel)

MAX_SAFE_INTEGER = 2**53 - 1
"""Larger whole numbers are refused by homeservers and read inexactly by JavaScript."""
MAX_DIGITS = 40
"""Digits of a whole number that are read: Python reads no thousands of them, and others lose the last ones."""
MAX_NESTING = 200
"""Levels of objects and lists; what is deeper could be read here and not be shown or written again elsewhere."""
MAX_FAULTS = 50
UNKNOWN_TAG = "is of an unknown type"
_TOO_DEEP = "the body is nested too deeply"
_TOO_LARGE = "a number is too large to be read"

# Only an escape can bring a surrogate into text that was decoded as UTF-8.
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read(body: bytes) -> dict[str, Any]:
    """Return the JSON object that `body` is.

    Raises `MalformedJson` for anything but one UTF-8 JSON text: a byte order mark, a key that
    stands twice in one object, NaN or Infinity, a number beyond them or of more than `MAX_DIGITS`
    digits, nesting that no reader can follow.
    Raises `Invalid` where the text is no object, or a string in it holds a lone surrogate.
    """
    content = _read(body)
    if not isinstance(content, dict):
        raise Invalid((), "must be an object")
    return content


def read_either(body: bytes) -> dict[str, Any] | list[Any]:
    """Return the JSON object or array that `body` is; strict as `read`, and raises what that does."""
    content = _read(body)
    if not isinstance(content, dict | list):
        raise Invalid((), "must be an object or a list")
    return content


def _read(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise MalformedJson("the body is not UTF-8") from fault
    try:
        content = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
        )
    except json.JSONDecodeError as fault:
        raise MalformedJson(f"the body is no JSON: {fault.msg} (line {fault.lineno}, column {fault.colno})") from fault
    except RecursionError as fault:
        raise MalformedJson(_TOO_DEEP) from fault
    if isinstance(content, dict | list) and _is_too_deep(content):
        raise MalformedJson(_TOO_DEEP)
    if _SURROGATE_ESCAPE.search(text):
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as fault:
            raise Invalid(_place_of_surrogate(content), "must not hold a lone surrogate") from fault
        except RecursionError as fault:
            raise MalformedJson(_TOO_DEEP) from fault
    return content


def validated(model: type[Model], body: bytes, *, place: Callable[[Loc], Loc] = tuple) -> Model:
    """Return `body` as `model`; raises `MalformedJson`, or `Invalid` with every field at fault.

    `place` turns a path as pydantic writes it into the one of the JSON text.
    """
    try:
        return model.model_validate(read(body))
    except ValidationError as fault:
        # Without what was sent, which may be secret, and whose sender knows it.
        found = fault.errors(include_url=False, include_input=False)
        raise invalid([(place(each["loc"]), _sentence(each)) for each in found]) from None


def invalid(faults: list[tuple[Loc, str]]) -> Invalid:
    """One error that names every field at fault; `faults` is not empty."""
    (loc, msg), *more = faults[:MAX_FAULTS]
    return Invalid(loc, msg, more=tuple(more))


def _sentence(fault: ErrorDetails) -> str:
    if fault["type"] != "union_tag_invalid":
        return fault["msg"]
    # The one message of pydantic's that quotes what was sent: only what the model expects is taken of it.
    known = fault["ctx"]["expected_tags"].replace("'", "")
    return f"{UNKNOWN_TAG}; known are {known}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedJson("a key stands twice in one object")
    return members


def _no_number(_constant: str) -> NoReturn:
    raise MalformedJson("NaN and Infinity are no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # it would be written again as no JSON at all
        raise MalformedJson(_TOO_LARGE)
    return number


def _whole(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_DIGITS:
        raise MalformedJson(_TOO_LARGE)
    return int(digits)


def _is_too_deep(content: dict[str, Any] | list[Any]) -> bool:
    level: list[Any] = [content]
    for _ in range(MAX_NESTING):
        level = [
            child
            for holder in level
            for child in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _place_of_surrogate(content: Any) -> Loc:
    """The path of the first string or key with a lone surrogate; each place knows only the one around it."""
    left: list[tuple[_Place | None, Any]] = [(None, content)]
    while left:
        place, value = left.pop()
        match value:
            case str() if _SURROGATE.search(value):
                return _path(place)
            case dict():
                if any(_SURROGATE.search(key) for key in value):
                    return _path(place)
                left.extend(((place, key), member) for key, member in value.items())
            case list():
                left.extend(((place, index), item) for index, item in enumerate(value))
            case _:
                pass
    return ()


def _path(place: _Place | None) -> Loc:
    loc: list[str | int] = []
    while place is not None:
        place, part = place
        loc.append(part)
    return tuple(reversed(loc))
