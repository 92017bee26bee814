"""Mapping keys: ``<board>_<resource>``, the name of a rank.

A resource is ``cpu``, ``arm`` or ``x86`` with cores (``0-3``, ``0,1,10``, or AutoDiCE's run of
one-digit cores, ``0123``), or ``gpu`` or ``npu`` with an optional number and an optional host
core (``gpu``, ``npu1``, ``gpu@4``). A suffix ``.2``, ``.3`` lets ranks share a resource. The name
of a board alone is its CPU with all cores.

The key of a mapping's entry may name several ranks that take turns, each with an optional weight:
``edge02_gpu*3|edge03_cpu0-3``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rankslice.backend.runtime.job import MAX_TURNS, Turns
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.specs.core_lists import CORES_PATTERN, MAX_CORES, core_list
from rankslice.framework.weighted_turns import by_weights
from rankslice.framework.wording import bare, joined, quoted

_RESOURCE = re.compile(
    r"(?P<word>cpu|arm|x86|gpu|npu)(?P<unit>[^@.]*)(?:@(?P<core>[^.]*))?(?:\.(?P<sharer>.*))?",
    re.DOTALL,
)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
_CORES = CORES_PATTERN.replace(r"\s*", "").strip("^$")
_KEY = (
    rf"[^|*]+_((cpu|arm|x86)({_CORES}|[0-9]{{2,}})"
    rf"|(gpu|npu)({_NUMBER.pattern})?(@({_NUMBER.pattern}))?)([.]([2-9]|[1-9][0-9]{{1,5}}))?"
)
_WEIGHT = r"([*][1-9][0-9]{0,5})?"
_ENTRY = rf"({_KEY}|[^|*_]+){_WEIGHT}"
KEY_PATTERN = rf"^{_ENTRY}([|]{_ENTRY})*$"
"""The form of an entry's key, as a regular expression of JSON Schemas."""

_FORM = (
    "expected <board>_<resource>, such as edge01_cpu0-3, edge01_gpu or edge01_npu@4, "
    "or a board alone"
)


@dataclass(frozen=True, slots=True)
class Key:
    """The parts of a mapping key. Its cores are still text: their meaning depends on the board."""

    text: str
    """The key as written."""
    board: str
    kind: str
    """``cpu``, ``gpu`` or ``npu``."""
    unit: str
    """Cores of a CPU as written, or the number of a GPU or NPU, empty where none is given."""
    host_core: int | None = None
    """Core that drives the GPU or NPU, if the key names it."""
    sharer: int = 1
    """Number of the rank among those that share the resource."""


def split_keys(text: str, where: str) -> tuple[str, ...]:
    """Return the mapping keys in a list of a command line, in its order.

    They are separated by commas or semicolons. A comma between cores, as in ``edge01_cpu0,2``,
    does not separate keys, because what follows it names no board.
    """
    keys = (key.strip() for key in re.split(r"[;,](?=[^;,]*_)|;", text))
    named = tuple(filter(None, keys))
    refuse_turns(named, where)
    return named


def refuse_turns(keys: Iterable[str], where: str) -> None:
    """Refuse keys of several ranks, or with a weight, where each key is to be one accelerator."""
    raise_mistakes(
        Mistake(
            f"{where}: {bare(key)}",
            "it is the key of ranks that take turns",
            "expected one accelerator per key, separated by ';' or ',', without weights",
        )
        for key in keys
        if not {"|", "*"}.isdisjoint(key)
    )


def split_turns(text: str, where: str) -> tuple[tuple[str, Turns], ...]:
    """Return the keys of the ranks that an entry's key names, and which frames each handles."""
    parts = [part.partition("*") for part in text.split("|")]
    raise_mistakes(
        Mistake(
            where,
            f"{quoted(weight)} after '*' is not a weight",
            "expected a number from 1, as in edge01_gpu*3",
        )
        for _, star, weight in parts
        if star and (not _NUMBER.fullmatch(weight) or weight == "0")
    )
    weights = [int(weight or 1) for _, _, weight in parts]
    if (period := sum(weights) // math.gcd(*weights)) > MAX_TURNS:
        found = f"the weights, divided by their common factor, add up to {period}"
        raise RankSliceError(Mistake(where, found, f"expected at most {MAX_TURNS}: round them"))
    return tuple(zip((key for key, *_ in parts), by_weights(weights), strict=True))


def lacks_weights(text: str) -> bool:
    return "|" in text and "*" not in text


def parse_key(text: str, where: str, boards: Collection[str] = ()) -> Key:
    """Return the parts of a mapping key, which is split at its last ``_``.

    The name of one of the ``boards`` alone stands for its CPU with all cores: ``unit`` is empty.
    """
    if text in boards:
        return Key(text, text, "cpu", "")
    board, _, resource = text.rpartition("_")
    if not board or not resource:
        raise RankSliceError(Mistake(where, "the key is not of the form board_resource", _FORM))
    match = _RESOURCE.fullmatch(resource)
    if match is None:
        expected = "expected cpu, arm or x86 with cores (cpu0-3), gpu, or npu"
        raise RankSliceError(Mistake(where, f"unknown resource {quoted(resource)}", expected))
    word, unit, core, sharer = match.group("word", "unit", "core", "sharer")
    kind = word if word in ("gpu", "npu") else "cpu"
    fault = _fault(kind, word, unit, core, sharer)
    if fault is not None:
        raise RankSliceError(Mistake(where, *fault))
    host_core = None if core is None else int(core)
    return Key(text, board, kind, unit, host_core, int(sharer or 1))


def _fault(
    kind: str, word: str, unit: str, core: str | None, sharer: str | None
) -> tuple[str, str] | None:
    if any(letter.isspace() for letter in unit):
        return f"white space in {quoted(word + unit)}", "remove it"
    if kind == "cpu" and not unit:
        return f"{word} without cores", f"expected cores, such as {word}0, {word}0-3 or {word}0,2"
    if kind == "cpu" and core is not None:
        return "a host core after '@' on a CPU", "expected '@' after gpu or npu only"
    if kind != "cpu" and unit and not _NUMBER.fullmatch(unit):
        return f"{quoted(unit)} after {word} is not a number", f"expected {word} or {word}1"
    if core is not None and not _is_core(core):
        return f"{quoted(core)} is not a host core", f"expected one core, such as {word}@4"
    if sharer is not None and (not _NUMBER.fullmatch(sharer) or int(sharer) < 2):
        found = f"{quoted('.' + sharer)} is not a suffix of ranks that share a resource"
        return found, "expected .2, .3 and so on"
    return None


def _is_core(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and int(text) < MAX_CORES


def read_cores(text: str, available: tuple[int, ...] | None, where: str) -> tuple[int, ...]:
    """Return the cores that a mapping key names, ascending; one named twice comes out twice.

    Args:
        text: ``0-3``, ``0,1,10``, ``12-12``, or digits alone. Several digits are one core or,
            in AutoDiCE's way, several cores of one digit: the reading that fits is taken.
        available: Cores of the board; ``None`` if unknown: then several digits are several
            cores, unless one is repeated.
    """
    if re.fullmatch("[0-9]{2,}", text):
        return _read_digits(text, available, where)
    try:
        return core_list(text)
    except ValueError as error:
        raise RankSliceError(
            Mistake(where, str(error), "expected cores such as 0-3 or 0,2")
        ) from None


def _read_digits(text: str, available: tuple[int, ...] | None, where: str) -> tuple[int, ...]:
    several = tuple(sorted({int(digit) for digit in text}))
    readings = [] if len(several) < len(text) else [several]
    if _is_core(text):
        readings.append((int(text),))
    if not readings:
        expected = "expected cores separated by commas, each once"
        raise RankSliceError(Mistake(where, f"a core is repeated in {quoted(text)}", expected))
    if available is None:
        return readings[0]
    fitting = [reading for reading in readings if set(reading) <= set(available)]
    if len(fitting) > 1:
        found = f"'{text}' is core {text} or cores {joined(list(text))}, and the board has both"
        expected = f"write {text}-{text} or {','.join(text)}"
        raise RankSliceError(Mistake(where, found, expected))
    return (fitting or readings)[0]
