"""The answer of an exploration, in sentences; the two mappings for a job with a surge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rankslice.exploration.objectives import OBJECTIVES, columns, rate_text
from rankslice.exploration.results.candidates import Candidate, Exploration, Failure, Strategy
from rankslice.framework.wording import digits, joined

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def answer(candidates: Sequence[Candidate], target_fps: float | None) -> tuple[str, ...]:
    best = _best_by_boards(candidates)
    use = recommended(candidates, target_fps)
    first = _fastest(best, use) if target_fps is None else _enough(best, use, target_fps)
    return (first, *_extremes(candidates), *_sources(candidates))


def recommended(candidates: Sequence[Candidate], target_fps: float | None) -> Candidate:
    """Return the mapping that the answer names first.

    It is the fastest; if a rate is wanted, and reached, the one of the fewest boards that reach it
    which needs least energy and memory.
    """
    enough = [c for c in candidates if target_fps is not None and _rate(c) >= target_fps]
    if not enough:
        return max(_best_by_boards(candidates).values(), key=_rate)
    fewest = min(len(candidate.boards) for candidate in enough)
    return _frugal([candidate for candidate in enough if len(candidate.boards) == fewest])


def _sources(candidates: Sequence[Candidate]) -> Iterator[str]:
    by_source: dict[str, list[int]] = {}
    for candidate in candidates:
        by_source.setdefault(candidate.best_known.basis, []).append(candidate.number)
    known = {source: numbers for source, numbers in by_source.items() if source != "predicted"}
    for source, numbers in known.items():
        which = f"mapping{'s' if len(numbers) > 1 else ''} {joined(list(map(str, numbers)))}"
        others = ", those of the others predicted" if "predicted" in by_source else ""
        yield f"Rates of {which} are {source}{others}."
    if not known:
        yield "These rates are predicted; --evaluate run measures them."


def strategies_text(strategies: Sequence[Strategy]) -> Iterator[str]:
    """Yield a sentence: which strategy is best in each objective that is known."""
    best = [
        f"{row.name} {joined([f'{s.name} (mapping {s.best[row.name]})' for s in winners])}"
        for row in columns()
        if (winners := [s for s in strategies if row.name in s.wins])
    ]
    if best:
        yield f"The best strategy by objective: {'; '.join(best)}."


def tried_text(exploration: Exploration) -> str:
    """Return a sentence about what was simulated or run; empty: nothing was."""
    if exploration.tried_by is None:
        return ""
    tried, failed = exploration.tried, len(exploration.failures)
    verb = "simulated" if exploration.tried_by == "simulator" else "built and run"
    text = f"{tried} {'mapping was' if tried == 1 else 'mappings were'} {verb}"
    if not failed:
        return f"{text}."
    return (
        f"{text}; {failed} of them failed and {'counts' if failed == 1 else 'count'} as impossible."
    )


_MAX_FAILURES, _MAX_LAYERS = 5, 2


def failure_texts(failures: Sequence[Failure]) -> Iterator[str]:
    """Yield a sentence for each mapping that did not run, with its reason; of many the first."""
    for failure in failures[:_MAX_FAILURES]:
        ranks = "; ".join(
            f"{key}: {_some(layers, _MAX_LAYERS)}" for key, layers in failure.mapping.items()
        )
        yield f"A mapping ({ranks}) did not run: {failure.reason.rstrip('.')}."
    more = len(failures) - _MAX_FAILURES
    if more > 0:
        yield f"Nor did {more} more; front.json has their reasons."


def _some(items: Sequence[Any], most: int) -> str:
    names = [
        f"{', '.join(item['layers'])} by {item['by']}" if isinstance(item, dict) else item
        for item in items
    ]
    text = ", ".join(names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def mappings_text(count: int) -> str:
    """Return ``1 mapping``, ``32,768 mappings``."""
    return f"{count:,} mapping{'s' if count != 1 else ''}"


def boards_text(count: int) -> str:
    """Return ``one board``, ``two boards``, ``12 boards``."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} board{'s' if count != 1 else ''}"


def _rate(candidate: Candidate) -> float:
    return candidate.best_known.throughput_fps


def _best_by_boards(candidates: Sequence[Candidate]) -> dict[int, Candidate]:
    """Return the fastest mapping of each number of boards, the fewest first."""
    best: dict[int, Candidate] = {}
    for candidate in candidates:
        count = len(candidate.boards)
        if count not in best or _rate(candidate) > _rate(best[count]):
            best[count] = candidate
    return dict(sorted(best.items()))


def _gives(candidate: Candidate) -> str:
    kinds = "+".join(kind.upper() for kind in candidate.accelerators)
    boards, verb = len(candidate.boards), "gives" if len(candidate.boards) == 1 else "give"
    return f"{boards_text(boards)} with {kinds} {verb} {rate_text(_rate(candidate))} frames/s"


def _fastest(best: dict[int, Candidate], fastest: Candidate) -> str:
    text = f"The fastest is mapping {fastest.number}: {_gives(fastest)}"
    fewest = next(iter(best.values()))
    if fewest is fastest:
        return f"{text}."
    return f"{text}; {_gives(fewest)} at best (mapping {fewest.number})."


def _enough(best: dict[int, Candidate], use: Candidate, target_fps: float) -> str:
    needs = f"your camera needs {rate_text(target_fps)}"
    if _rate(use) < target_fps:
        return (
            f"No mapping found is fast enough: {_gives(use)} (mapping {use.number}),"
            f" {needs}. What limits it: {use.bottleneck}."
        )
    count = len(use.boards)
    fewer = [best[fewest] for fewest in best if fewest < count]
    if not fewer:
        return f"{_capital(_gives(use))}, {needs}: use mapping {use.number}."
    most = max(fewer, key=_rate)
    return (
        f"{_capital(_gives(most))}, {needs}: use mapping {use.number} on {boards_text(count)}"
        f" ({rate_text(_rate(use))} frames/s)."
    )


def _frugal(candidates: Sequence[Candidate]) -> Candidate:
    """Return the one that needs least: energy and memory, as far as these are known of all."""
    rows = [
        row
        for row in OBJECTIVES.values()
        if row.extreme and all(math.isfinite(row.cost_of(candidate)) for candidate in candidates)
    ]
    return min(
        candidates,
        key=lambda candidate: (*(row.cost_of(candidate) for row in rows), -_rate(candidate)),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _extremes(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield which mapping needs least, if there is anything to choose from."""
    for row in OBJECTIVES.values():
        best = min(candidates, key=row.cost_of)
        if row.extreme and len(candidates) > 1 and math.isfinite(row.cost_of(best)):
            value = f"{row.cell(best, best.best_known, '')}{row.basis_text(best.best_known)}"
            yield (
                f"{row.extreme}, {value}: mapping {best.number}, {rate_text(_rate(best))} frames/s"
                f" on {boards_text(len(best.boards))}."
            )


BUSY = 0.9
"""Share of its rate up to which a route takes frames before `run` changes to the other one."""


def routes(
    candidates: Sequence[Candidate], fps: float, surge_fps: float
) -> tuple[Candidate, Candidate] | None:
    """Return the mapping of least latency for the usual load, and one for the surge.

    ``None``: for one of them no mapping is fast enough.
    """
    calm = [candidate for candidate in candidates if BUSY * _rate(candidate) >= fps]
    fast = [candidate for candidate in candidates if _rate(candidate) >= surge_fps]
    if not calm or not fast:
        return None
    normal = min(calm, key=lambda candidate: (candidate.best_known.latency_s, -_rate(candidate)))
    return normal, normal if normal in fast else recommended(fast, surge_fps)


def routes_text(
    pair: tuple[Candidate, Candidate] | None, fps: float, surge_fps: float
) -> Iterator[str]:
    if pair is None:
        rates = f"{rate_text(fps)} and {rate_text(surge_fps)} frames/s"
        yield f"There is no pair of mappings for {rates}: at least one of these rates is too high."
        return
    normal, surge = pair
    if normal is surge:
        yield (
            f"Mapping {normal.number} has the least latency and keeps up with a surge of"
            f" {rate_text(surge_fps)} frames/s, too: one route is enough."
        )
        return
    yield (
        f"For {rate_text(fps)} frames/s mapping {normal.number} has the least latency"
        f" ({_told(normal)}); for a surge of {rate_text(surge_fps)} take mapping {surge.number}"
        f" ({_told(surge)}): build with --mapping {normal.file} --surge {surge.file}."
    )


def _told(candidate: Candidate) -> str:
    figures = candidate.best_known
    return f"{digits(1e3 * figures.latency_s)} ms, {rate_text(figures.throughput_fps)} frames/s"
