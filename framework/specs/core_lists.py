"""Lists of cores as people write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rankslice.framework.wording import quoted

MAX_CORES = 8192
"""Largest number of cores that Linux can be built for; guards against ranges without end."""

_NUMBER = "(0|[1-9][0-9]{0,5})"
_PART = re.compile(f"{_NUMBER}(?:-{_NUMBER})?")
CORES_PATTERN = rf"^\s*{_PART.pattern}(\s*,\s*{_PART.pattern})*\s*$"
"""What :func:`core_list` reads, as a regular expression of JSON Schemas."""


def core_list(text: str) -> tuple[int, ...]:
    """Return the cores of a list such as ``0-3,6``, ascending; repeated ones come out repeated."""
    cores: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{quoted(text)} is not a list of cores")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"the range '{first}-{last}' runs backwards")
        if last >= MAX_CORES:
            raise ValueError(f"core {last} is beyond the last possible one, {MAX_CORES - 1}")
        cores += range(first, last + 1)
        if len(cores) > MAX_CORES:
            raise ValueError(f"{quoted(text)} names more than {MAX_CORES} cores")
    return tuple(sorted(cores))


def core_ranges(cores: tuple[int, ...]) -> str:
    """Return ascending cores with their runs joined: ``4``, ``0-3,6``."""
    return ",".join(run_texts(cores, "-"))


def run_texts(numbers: Sequence[int], to: str) -> list[str]:
    """Return numbers with runs of them joined: ``4``, ``0-3``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{run[0]}{to}{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


def format_cores(cores: tuple[int, ...]) -> str:
    """Return ascending cores as people write them: ``core 4``, ``cores 0-3,6``."""
    return f"{'core' if len(cores) == 1 else 'cores'} {core_ranges(cores)}"


def count_or_list(text: str) -> tuple[int, ...]:
    """Return the cores of a board, ascending: ``0-5``, ``0,2``, or ``6`` for the first six."""
    if re.fullmatch("0|[1-9][0-9]{0,5}", text.strip()):
        count = int(text)
        if not 0 < count <= MAX_CORES:
            raise ValueError(f"a board cannot have {count} cores")
        return tuple(range(count))
    return each_once(core_list(text))


def each_once(cores: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cores as they are; raise :class:`ValueError` if one is repeated."""
    repeated = tuple(core for core, times in Counter(cores).items() if times > 1)
    if repeated:
        raise ValueError(
            f"{format_cores(repeated)} {'is' if len(repeated) == 1 else 'are'} repeated"
        )
    return cores
