"""Profiles, printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from rankslice.exploration.times.span_times import Refinement
from rankslice.framework.profile import Profile, ProfiledKind, Span
from rankslice.framework.wording import bytes_text, digits, share_text
from rankslice.session.profiling.span_bench import Listener
from rankslice.session.profiling.time_limit import Expectation, LeftOut
from rankslice.views.content import Table
from rankslice.views.terminal import MAX_LINE, print_line, shortened, show


class ProfileTalk(Listener):
    """Shows how far the measuring is."""

    def __init__(self, talk: Console, progress: Progress) -> None:
        self._talk, self._progress = talk, progress
        self._tasks: dict[str, TaskID] = {}
        self._step = progress.add_task("reading", total=None)

    def step(self, text: str) -> None:
        self._progress.update(self._step, description=escape(text), visible=True)

    def note(self, text: str) -> None:
        print_line(self._talk, text, "note")

    def expect(self, what: Expectation) -> None:
        text = f"{_count(what.spans, 'slice')} will take about {seconds_text(what.seconds)}"
        planning = f"each round of planning after that about {seconds_text(what.round_s)}"
        print_line(self._talk, f"{text}, and {planning}")

    def begin(self, key: str, spans: int) -> None:
        self._progress.update(self._step, visible=False)
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(escape(f"slices on {key}"), total=0)
        task = next(t for t in self._progress.tasks if t.id == self._tasks[key])
        self._progress.update(task.id, total=(task.total or 0) + spans)

    def measured(self, key: str) -> None:
        self._progress.advance(self._tasks[key])


def print_profile(
    profile: Profile, refinement: Refinement | None, file: Path, console: Console
) -> None:
    head = ("key", "engine", "spans", "model", "layers one by one", "memory", "energy")
    caption = "milliseconds per frame; memory: growth by the whole model; energy: of the board"
    rows = tuple(_row(profile, kind) for kind in profile.kinds)
    show(console, Table(caption, head, rows), max_cell=MAX_LINE)
    for kind in profile.kinds:
        show(console, *_limits(profile, kind))
    if refinement is not None:
        show(console, refinement_text(refinement))
    show(console, f"written to {file!s}")


def print_left_out(left_out: Sequence[LeftOut], console: Console) -> None:
    for kind in left_out:
        parts = []
        if kind.spans:
            fewest, most = kind.lengths
            layers = _count(most, "layer") if fewest == most else f"{fewest} to {most} layers"
            parts.append(f"{len(kind.spans)} of {kind.of} slices were never measured, of {layers}")
        if kind.seldom:
            parts.append(f"{kind.seldom} long ones only once or twice")
        text = (
            f"{kind.key}: time limit reached: {'; '.join(parts)}; run the same command to continue"
        )
        print_line(console, text)
        if meaning := kind.meaning():
            print_line(console, meaning)


def _row(profile: Profile, kind: ProfiledKind) -> tuple[str, ...]:
    figures = _summary(profile, kind)
    key, energy = shortened(kind.key), figures["energy_j"]
    return (
        key if len(kind.keys) == 1 else f"{key} ({len(kind.keys)} alike)",
        kind.engine_version,
        str(len(kind.spans)),
        _milliseconds(figures["model_s"]),
        _milliseconds(figures["one_by_one_s"]),
        _memory(figures["memory_bytes"], figures["gpu_bytes"]),
        f"{energy:.3f} J" if energy is not None else "no sensor",
    )


def _memory(nbytes: int | None, of_gpu: int | None) -> str:
    """Return the memory that the whole model takes: ``285 MB``, ``285 MB + 811 MB of the GPU``."""
    if nbytes is None:
        return "-"
    return bytes_text(nbytes) + (
        f" + {bytes_text(of_gpu)} of the GPU" if of_gpu is not None else ""
    )


def _limits(profile: Profile, kind: ProfiledKind) -> Iterator[str]:
    alone = [span for span in kind.spans if span.first == span.last and span.refused]
    if alone:
        first = alone[0]
        name = profile.model.layers[first.first]
        yield (
            f"{kind.key} refuses {len(alone)} of {len(profile.model.layers)} layers by themselves;"
            f" {name}: {first.problem}"
        )
    others = [span for span in kind.spans if span.problem and not span.refused]
    if others:
        span = others[0]
        text = f"{kind.key}: {len(others)} spans could not be measured"
        yield f"{text}; layers {_named(profile, span)}: {span.problem}"


def refinement_text(refinement: Refinement) -> str:
    """Return in words whether the best plan's times are true."""
    if not refinement.rounds:
        return "no pipeline of these accelerators can run the model"
    last = refinement.rounds[-1]
    rounds = len(refinement.rounds)
    slowest = max(last.measured_s)
    text = (
        f"the fastest pipeline has {_count(len(last.slices), 'slice')},"
        f" the slowest takes {_milliseconds(slowest)} ms; expected and measured times differ by"
        f" {share_text(last.error)} at most, after {_count(rounds, 'round')}"
    )
    if refinement.reached:
        return text
    aim = share_text(refinement.within)
    return f"{text}: more than {aim}, so the machine may be busy; run it again to continue"


def profile_summary(profile: Profile, refinement: Refinement | None) -> dict[str, Any]:
    return {
        "model": profile.model.name,
        "layers": len(profile.model.layers),
        "kinds": [_summary(profile, kind) for kind in profile.kinds],
        "refinement": _refinement(profile, refinement) if refinement is not None else None,
    }


def _summary(profile: Profile, kind: ProfiledKind) -> dict[str, Any]:
    last = len(profile.model.layers) - 1
    whole = next((s for s in kind.spans if (s.first, s.last) == (0, last)), None)
    energy_uj = whole.energy_uj if whole is not None else None
    alone = [s.seconds for s in kind.spans if s.first == s.last and s.seconds is not None]
    return {
        "key": kind.key,
        "keys": list(kind.keys),
        "engine": kind.engine_version,
        "host": kind.board.host,
        "spans": len(kind.spans),
        "samples": sum(len(span.samples_ns) for span in kind.spans),
        "refused": sum(span.refused for span in kind.spans),
        "model_s": whole.seconds if whole is not None else None,
        # Unless one of the layers has not run by itself.
        "one_by_one_s": sum(alone) if len(alone) == last + 1 else None,
        "memory_bytes": whole.memory_bytes if whole is not None else None,
        "gpu_bytes": whole.gpu_bytes if whole is not None else None,
        "energy_j": energy_uj / 1e6 if energy_uj is not None else None,
        "energy_sensor": kind.board.sensor,
    }


def _refinement(profile: Profile, refinement: Refinement) -> dict[str, Any]:
    names, kinds = profile.model.layers, profile.kinds
    return {
        "reached": refinement.reached,
        "within": refinement.within,
        "rounds": [
            {
                "slices": [
                    {"kind": kinds[s.kind].key, "first": names[s.first], "last": names[s.last]}
                    for s in done.slices
                ],
                "expected_s": list(done.expected_s),
                "measured_s": list(done.measured_s),
                "error": done.error,
            }
            for done in refinement.rounds
        ],
    }


def _named(profile: Profile, span: Span) -> str:
    return " to ".join(dict.fromkeys(profile.model.layers[n] for n in (span.first, span.last)))


def seconds_text(seconds: float) -> str:
    """Return a time as people say it: ``8 s``, ``3 minutes``."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{round(seconds / 60)} minutes"


def _milliseconds(seconds: float | None) -> str:
    return digits(1e3 * seconds) if seconds is not None else "-"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
