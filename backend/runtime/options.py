"""What the user may choose when a job is started: the driver's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from .figures.events import USUAL_EVENTS

_T = TypeVar("_T")


def _natural_int(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below 0")
    return value


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    return _positive_int(height), _positive_int(width or height)


def _option(usual: _T, text: str, kind: Any = None) -> _T:
    """Return a field with its usual value, its help, and how its value is read.

    ``kind``: a function that reads it, or a tuple of the values it may have; ``None``: a flag.
    """
    value: _T = field(default=usual, metadata={"help": text, "kind": kind})
    return value


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How pixels become values: ``(pixel - mean) * scale``, pixels being 0 to 255.

    Where neither is given, :mod:`.sources.image_input` decides by the type of the model input.
    """

    layout: str = _option("nchw", "of image inputs", ("nchw", "nhwc"))
    size: tuple[int, int] | None = _option(
        None, "HxW: resize images to this, then cut the middle out; else to the model input", _size
    )
    """Nothing is cut where the model leaves the size open."""
    mean: tuple[float, ...] = _option(
        (), "subtracted from pixels: one value, or by channel", _floats
    )
    scale: tuple[float, ...] = _option((), "multiplies the difference, likewise", _floats)
    keep_size: bool = _option(False, "resize no image; for a model with open height and width")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run of a job."""

    inputs: tuple[str, ...] = ("random",)
    """What names the source: ``random``, or files."""
    frames: int | None = _option(
        None, "number of frames; else all of the source, or 100 of random", _natural_int
    )
    unlimited: bool = _option(False, "random frames without end")
    drain: bool = _option(False, "the launcher may end the stream")
    announce: bool = _option(False, "the launcher is told what enters: number, time and name")
    stream: bool = _option(False, "results go to the launcher, too, as they come")
    seed: int = _option(0, "random seed", int)
    fps: float | None = _option(
        None,
        "frames that arrive per second; else at the source's rate, or as fast as they are taken",
        _positive_float,
    )
    pull: bool = _option(False, "read a source with its own rate as fast as frames are taken")
    arrivals: Path | None = _option(
        None, "instead: file with the time of each arrival, in seconds, one a line", Path
    )
    samples_per_query: int | None = _option(
        None, "frames arrive so many at once, when those before have come out", _positive_int
    )
    overflow: str = _option("fail", "if a timed frame finds the queue full", ("fail", "drop"))
    queue: int | None = _option(
        None, "timed frames that may wait; else those of a second, or the window", _positive_int
    )
    window: int | None = _option(
        None, "most frames inside the pipeline; else the job's window", _positive_int
    )
    switch: str = _option(
        "auto", "which route frames take, if the job has two", ("auto", "normal", "surge")
    )
    normal_fps: float | None = _option(
        None,
        "frames per second that the normal route can handle; else learnt while frames wait",
        _positive_float,
    )
    surge_queue: int | None = _option(
        None, "so many waiting frames begin a surge; else 8, or twice the window", _positive_int
    )
    surge_above: float = _option(
        0.9, "so do arrivals above this share of the normal route's rate", _positive_float
    )
    normal_below: float = _option(
        0.7, "a surge ends when arrivals have stayed below this share of it", _positive_float
    )
    normal_after_s: float = _option(1.0, "for so many seconds", _positive_float)
    exact: bool = _option(False, "engines without graph optimisation: slicing changes no bit")
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    results: Path = _option(
        Path("results.bin"), "file on the sink's board to which outputs are appended", Path
    )
    skip_failed: bool = _option(False, "leave a frame out on which an engine fails, and go on")
    report: Path | None = _option(
        None, "JSON file on the sink's board with the measurements of all ranks", Path
    )
    events: Path | None = _option(
        None, "folder, on each board, for what each rank does, event by event", Path
    )
    """``None``: each rank keeps its last ones in a file that goes with the job."""
    events_kept: int = _option(USUAL_EVENTS, "events that each rank keeps", _positive_int)
    record: Path | None = _option(
        None, "folder, on each board, for the tensors of some frames", Path
    )
    record_first: int = _option(0, "number of the first of them", _natural_int)
    record_frames: int = _option(10, "how many of them", _positive_int)
    operators: bool = _option(False, "with --events: also when operators ran, if the engine tells")
    quiet: bool = _option(False, "print no summary at the end")
    progress: bool = _option(False, "print lines 'completed N'")
    latency: bool = _option(False, "wake before frames are due, use more processor time")
    start_timeout_s: float | None = _option(
        None, "seconds until all ranks must be ready for frame 0; else 120", _positive_float
    )
    frame_timeout_s: float | None = _option(
        None,
        "seconds that a segment may take for a frame; else 30, or 20 times the slowest",
        _positive_float,
    )
    bind: bool = _option(True, "leave cores as mpirun set them")
    direct: bool = _option(True, "ranks of one board exchange messages instead of sharing memory")

    def to_arguments(self) -> list[str]:
        """Return the command line that :func:`parse_options` reads as these options."""
        # With "=", for a value that begins with a dash must not be taken for a flag.
        arguments = [f"--input={name}" for name in self.inputs]
        for name, kind, usual, _ in _OPTIONS:
            value = getattr(self.preprocessing if name in _PIXELS else self, name)
            if value != usual or name == "results":
                flag = _flag(name, usual)
                arguments.append(flag if kind is None else f"{flag}={_text(name, value)}")
        return arguments


_PIXELS = [each.name for each in fields(Preprocessing)]
_OPTIONS = [
    (each.name, each.metadata["kind"], each.default, each.metadata["help"])
    for each in (*fields(RunOptions), *fields(Preprocessing))
    if each.metadata
]
"""Name, kind, usual value and help of each option but ``--input``."""


def _flag(name: str, usual: object) -> str:
    """Return what sets an option; what is usually on is switched off."""
    off = "no-" if usual is True else ""
    return f"--{off}{name.removesuffix('_s').replace('_', '-')}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ("x" if name == "size" else ",").join(map(repr, value))
    return str(value)


def parse_options(arguments: Sequence[str] | None = None) -> RunOptions:
    """Return the options that the driver was started with; exits with 2 if they make no sense."""
    from .sources import usage

    parser = argparse.ArgumentParser(
        prog="driver.py",
        description="One rank of a pipeline. Start it with: mpirun ... python driver.py",
    )
    parser.add_argument("--input", action="append", help=f"where frames come from: {usage()}")
    for name, kind, usual, text in _OPTIONS:
        if kind is None:
            how: dict[str, Any] = {"action": "store_false" if usual else "store_true"}
        elif isinstance(kind, tuple):
            how = {"choices": kind}
        else:
            how = {"type": kind, "metavar": name.removesuffix("_s").upper()}
        parser.add_argument(_flag(name, usual), dest=name, default=usual, help=text, **how)
    given = vars(parser.parse_args(arguments))
    return RunOptions(
        inputs=tuple(given.pop("input") or RunOptions().inputs),
        preprocessing=Preprocessing(**{name: given.pop(name) for name in _PIXELS}),
        **given,
    )
