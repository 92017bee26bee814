"""JSON to plain data, with a message about what is wrong with invalid text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import quoted

_WORD = re.compile(r"\w+|\S|$", re.ASCII)


def read_json(
    text: str,
    where: str,
    shape: str,
    pairs: Callable[[Sequence[tuple[str, Any]]], object] = dict,
) -> object:
    """Parse a JSON text; NaN and Infinity, which JSON lacks, are refused.

    Args:
        shape: What it should hold, for messages: ``expected ...``.
        pairs: Makes an object of its names and values.
    """
    if not text.strip():
        raise RankSliceError(Mistake(where, "the file is empty", shape))

    def refuse(constant: str) -> NoReturn:
        raise RankSliceError(Mistake(where, f"{constant} is not a JSON number", shape))

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)
    except json.JSONDecodeError as error:
        line = f"{where}: line {error.lineno}, column {error.colno}"
        raise RankSliceError(Mistake(line, *_fault(error, shape))) from None
    except RecursionError:
        raise RankSliceError(Mistake(where, "brackets are nested too deeply", shape)) from None
    except ValueError:  # Python refuses to read integers of thousands of digits
        raise RankSliceError(Mistake(where, "a number is too long", shape)) from None


def _fault(error: json.JSONDecodeError, shape: str) -> tuple[str, str]:
    match = _WORD.match(error.doc, error.pos)
    word = match[0] if match else error.doc[error.pos]
    found = f"found {quoted(word)}" if word else "the file ends"
    if not error.doc[: error.pos].strip():
        return found, shape
    for beginning, fault in {
        "Unterminated string": ("a string is not closed", "expected a closing '\"'"),
        "Invalid control character": (
            "a string holds a line break or another control character",
            "write \\n for a line break",
        ),
        "Invalid \\escape": ("a string holds a backslash", "write \\\\ for one"),
        "Invalid \\uXXXX": ("a string holds an incomplete \\u", "expected four digits after it"),
        "Extra data": (f"{found} after the end", "expected only one object"),
        "Expecting ','": (found, "expected a comma or a closing bracket"),
        "Expecting ':'": (found, "expected a colon"),
        "Expecting property name": (found, 'expected a name in double quotes, such as "conv1"'),
        "Illegal trailing comma": ("there is a comma after the last item", "remove it"),
    }.items():
        if error.msg.startswith(beginning):
            return fault
    return found, 'expected a value, such as "conv1" or ["conv1", "conv2"]'
