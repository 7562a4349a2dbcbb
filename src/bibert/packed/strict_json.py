"""JSON with one spelling for one value: `write` gives it, `parse` refuses what `json.loads` is lenient about.

Repeated keys, NaN and infinity, half surrogates, numbers and nesting without end are errors here. What the values mean
is the business of `header`; `what` is the name of the text in messages.
"""

import json
import math
import re
from collections import Counter
from typing import Any

from bibert.errors import ModelFileError

MOST_NESTING = 16
MOST_DIGITS = 32

# A string, even one without an end, is one token, so that brackets in it do not count.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def write(value: object, what: str) -> str:
    """The one spelling of a value: sorted keys, no spaces, nothing escaped without need.

    Raises:
        ModelFileError: it has no spelling.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise ModelFileError(f"{what}: cannot be written as JSON: {error}; give plain values") from None
    return text


def parse(text: str, what: str) -> Any:
    """The value of a text.

    Raises:
        ModelFileError: it is not JSON, or not JSON that `write` could have written.
    """
    try:
        # Before json.loads, whose own limit depends on how deep the caller's stack is.
        _check_nesting(text)
        return json.loads(text, object_pairs_hook=_unique, parse_int=_whole, parse_float=_real, parse_constant=_real)
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at character {error.pos} of {len(text)}"
    except ModelFileError as error:
        message = str(error)
    raise ModelFileError(f"{what}: {message}")


def _check_nesting(text: str) -> None:
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += _STEP.get(token[0], 0)
        if depth > MOST_NESTING:
            raise ModelFileError(f"is nested {depth} deep or more, at most {MOST_NESTING} are allowed")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ModelFileError(f"the key {name!r} is there {times} times")
    return values


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:  # Python refuses some thousand digits itself, with another error
        raise ModelFileError(f"a number has {len(digits)} digits, at most {MOST_DIGITS} are allowed")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ModelFileError(f"the number {digits} is not finite")
    return value
