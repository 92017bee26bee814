"""What to take from an exploration, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.exploration.results.results import Choice, Exploration, Failure
from rankslice.framework.quantities import bytes_text, joules_text
from rankslice.framework.wording import joined

__all__ = [
    "answer",
    "boards_text",
    "failure_texts",
    "mappings_text",
    "objectives_text",
    "rate_text",
    "recommended",
    "tried_text",
]

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def answer(choices: Sequence[Choice], target_fps: float | None) -> tuple[str, ...]:
    """Return sentences that say which mapping to take.

    Args:
        choices: those found; the best of each number of boards are among them.
        target_fps: the rate at which frames come, if there is one.
    """
    best = _best_by_boards(choices)
    use = recommended(choices, target_fps)
    first = _fastest(best, use) if target_fps is None else _enough(best, use, target_fps)
    return (first, *_extremes(choices), *_sources(choices))


def recommended(choices: Sequence[Choice], target_fps: float | None) -> Choice:
    """Return the mapping that the answer names first.

    It is the fastest; if a rate is wanted, and reached, the one of the fewest boards that reach it
    which needs least energy and memory.

    Args:
        choices: those found, at least one.
        target_fps: the rate at which frames come, if there is one.
    """
    enough = [c for c in choices if target_fps is not None and _rate(c) >= target_fps]
    if not enough:
        return max(_best_by_boards(choices).values(), key=_rate)
    fewest = min(len(choice.boards) for choice in enough)
    return _frugal([choice for choice in enough if len(choice.boards) == fewest])


def objectives_text(objectives: Sequence[str]) -> str:
    """Return the objectives by which mappings were compared: ``throughput and memory``."""
    return joined(list(objectives))


def _sources(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield a sentence that says which figures were only predicted."""
    by_source: dict[str, list[int]] = {}
    for choice in choices:
        by_source.setdefault(choice.best_known.source, []).append(choice.number)
    known = {source: numbers for source, numbers in by_source.items() if source != "predicted"}
    for source, numbers in known.items():
        which = f"mapping{'s' if len(numbers) > 1 else ''} {joined(list(map(str, numbers)))}"
        others = ", those of the others predicted" if "predicted" in by_source else ""
        yield f"Rates of {which} are {source}{others}."
    if not known:
        yield "These rates are predicted; --evaluate run measures them."


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


def _some(names: Sequence[str], most: int) -> str:
    """Return the first names of a list."""
    text = ", ".join(names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def mappings_text(count: int) -> str:
    """Return ``1 mapping``, ``32,768 mappings``."""
    return f"{count:,} mapping{'s' if count != 1 else ''}"


def rate_text(fps: float) -> str:
    """Return a rate with about three digits: ``31.4``, ``812``."""
    decimals = 2 if fps < 9.995 else 1 if fps < 99.95 else 0
    return f"{fps:.{decimals}f}"


def boards_text(count: int) -> str:
    """Return ``one board``, ``two boards``, ``12 boards``."""
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} board{'s' if count != 1 else ''}"


def _rate(choice: Choice) -> float:
    return choice.best_known.throughput_fps


def _best_by_boards(choices: Sequence[Choice]) -> dict[int, Choice]:
    """Return the fastest mapping of each number of boards, the fewest first."""
    best: dict[int, Choice] = {}
    for choice in choices:
        count = len(choice.boards)
        if count not in best or _rate(choice) > _rate(best[count]):
            best[count] = choice
    return dict(sorted(best.items()))


def _with_accelerators(choice: Choice) -> str:
    kinds = "+".join(kind.upper() for kind in choice.accelerators)
    return f"{boards_text(len(choice.boards))} with {kinds}"


def _gives(choice: Choice) -> str:
    verb = "gives" if len(choice.boards) == 1 else "give"
    return f"{_with_accelerators(choice)} {verb} {rate_text(_rate(choice))} frames/s"


def _fastest(best: dict[int, Choice], fastest: Choice) -> str:
    text = f"The fastest is mapping {fastest.number}: {_gives(fastest)}"
    fewest = next(iter(best.values()))
    if fewest is fastest:
        return f"{text}."
    return f"{text}; {_gives(fewest)} at best (mapping {fewest.number})."


def _enough(best: dict[int, Choice], use: Choice, target_fps: float) -> str:
    """Return the sentence that names the mapping for a camera's rate."""
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


def _frugal(choices: Sequence[Choice]) -> Choice:
    """Return the one that needs least: energy and memory, as far as these are known of all."""
    figures = [choice.best_known for choice in choices]
    known = all(each.energy_j is not None for each in figures)
    sized = all(each.memory_bytes is not None for each in figures)

    def needs(choice: Choice) -> tuple[float, float, float]:
        energy = choice.best_known.energy_j if known else None
        memory = choice.best_known.memory_bytes if sized else None
        return energy or 0.0, float(memory or 0), -_rate(choice)

    return min(choices, key=needs)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _extremes(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield what needs least, if there is anything to choose from."""
    if len(choices) == 1:
        return
    known = [choice for choice in choices if choice.best_known.energy_j is not None]
    if known:
        least = min(known, key=lambda choice: choice.best_known.energy_j or 0.0)
        joules = joules_text(least.best_known.energy_j or 0.0)
        yield (
            f"The least energy per board and frame, {joules} ({least.best_known.energy_source}):"
            f" mapping {least.number}, {rate_text(_rate(least))} frames/s on"
            f" {boards_text(len(least.boards))}."
        )
    sized = [choice for choice in choices if choice.best_known.memory_bytes is not None]
    if sized:
        least = min(sized, key=lambda choice: choice.best_known.memory_bytes or 0)
        yield (
            f"The least memory per board, {bytes_text(least.best_known.memory_bytes or 0)}:"
            f" mapping {least.number}, {rate_text(_rate(least))} frames/s on"
            f" {boards_text(len(least.boards))}."
        )
