"""What the user may choose when a job is started: the driver's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .figures.events import USUAL_EVENTS


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How pixels become values: ``(pixel - mean) * scale``, pixels being 0 to 255.

    Where neither is given, :mod:`.sources.image_input` decides by the type of the model input.
    """

    layout: str = "nchw"
    """``nchw`` or ``nhwc``."""
    size: tuple[int, int] | None = None
    """Height and width to resize to, before the middle is cut out in the size of the model input;
    ``None``: resize to the model input. Nothing is cut where that leaves the size open."""
    mean: tuple[float, ...] = ()
    """One value, or one per channel, in pixel units; ``()``: 0."""
    scale: tuple[float, ...] = ()
    """One value, or one per channel; ``()``: the usual one for the type of the model input."""
    keep_size: bool = False
    """Whether images keep their sizes; only where the model leaves height and width open."""


_SWITCHES = {
    "bind": "leave cores as mpirun set them",
    "direct": "ranks of one board exchange messages instead of sharing memory",
}
"""Options that are on unless they are switched off."""

_PIXELS = [each.name for each in fields(Preprocessing)]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run of a job."""

    inputs: tuple[str, ...] = ("random",)
    """What names the source: ``random``, or files."""
    frames: int | None = None
    """How many frames; ``None``: as many as the source has, 100 for ``random``."""
    unlimited: bool = False
    """Without ``frames``: no end of ``random``."""
    drain: bool = False
    """The source listens to the launcher, which may end the stream."""
    announce: bool = False
    """The source tells the launcher what enters: which arrival, when it arrived, and its name."""
    stream: bool = False
    """Results go to the launcher, too, as they come."""
    seed: int = 0
    """Random seed of ``random``."""
    fps: float | None = None
    """Frames that arrive per second; ``None``: at the source's own rate, if it has one, or as fast
    as they are taken."""
    pull: bool = False
    """Frames of a source with its own rate are read as fast as they are taken."""
    arrivals: Path | None = None
    """Instead: a file with the time of each arrival, in seconds, one a line."""
    samples_per_query: int | None = None
    """Frames that have no rate arrive in queries of so many, each when the results of the one
    before are out; ``None``: a frame arrives when there is room for it."""
    overflow: str = "fail"
    """``fail`` or ``drop``: what happens to a timed frame that finds the queue full."""
    queue: int | None = None
    """How many timed frames may wait; ``None``: those of a second, or ``window`` if more."""
    window: int | None = None
    """Frames inside the pipeline at most; ``None``: the job's default."""
    switch: str = "auto"
    """``auto``, ``normal`` or ``surge``: which route frames take, if the job has two."""
    normal_fps: float | None = None
    """Frames per second that the normal route can handle; ``None``: learnt while frames wait."""
    surge_queue: int | None = None
    """So many waiting frames begin a surge; ``None``: 8, or twice the window if that is more."""
    surge_above: float = 0.9
    """So does a rate of arrivals above this share of the normal route's rate."""
    normal_below: float = 0.7
    """A surge ends once the rate of arrivals has stayed below this share of it."""
    normal_after_s: float = 1.0
    """For this time, in seconds."""
    exact: bool = False
    """Engines run without graph optimisation, so that slicing changes no bit."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    results: Path = Path("results.bin")
    """File on the sink's board to which outputs are appended."""
    skip_failed: bool = False
    """A frame on which an engine fails is left out of the results, instead of ending the job."""
    report: Path | None = None
    """JSON file on the sink's board with the measurements of all ranks."""
    events: Path | None = None
    """Folder, on each board, for the ranks' files of events; ``None``: each rank keeps its last
    ones in a file that goes with the job."""
    events_kept: int = USUAL_EVENTS
    """Events that each rank keeps."""
    record: Path | None = None
    """Folder, on each board, for the ranks' files of tensors; ``None``: they are not recorded."""
    record_first: int = 0
    """Number of the first frame whose tensors are recorded."""
    record_frames: int = 10
    """How many frames are recorded."""
    operators: bool = False
    """With ``events``: each rank also writes when its operators ran, if its engine tells."""
    quiet: bool = False
    """The sink's rank prints no summary at the end."""
    progress: bool = False
    """The sink prints lines ``completed N`` to stdout as the run goes on."""
    latency: bool = False
    """Wake before frames are due: lower latency, more processor time."""
    start_timeout_s: float | None = None
    """Time until all ranks must be ready for frame 0; ``None``: 120 s."""
    frame_timeout_s: float | None = None
    """Time that a segment may take for one frame; ``None``: 30 s, or 20 times the slowest."""
    bind: bool = True
    """Bind each rank to its cores."""
    direct: bool = True
    """Ranks of one board share memory, instead of exchanging messages."""

    def to_arguments(self) -> list[str]:
        """Return the command line that :func:`parse_options` reads as these options."""
        # With "=", for a value that begins with a dash must not be taken for a flag.
        arguments = [f"--input={name}" for name in self.inputs]
        usual = RunOptions()
        for name in _settings():
            value = _value(self, name)
            if value != _value(usual, name) or name == "results":
                flag = _flag(name)
                arguments.append(flag if value is True else f"{flag}={_text(name, value)}")
        return [*arguments, *(f"--no-{name}" for name in _SWITCHES if not getattr(self, name))]


def _settings() -> dict[str, dict[str, Any]]:
    """Return how argparse reads each option but ``--input`` and the switches, by its field."""
    return {
        "frames": {"type": _natural_int, "help": "number of frames"},
        "unlimited": {"action": "store_true", "help": "random frames without end"},
        "drain": {"action": "store_true", "help": "the launcher may end the stream"},
        "announce": {"action": "store_true", "help": "the launcher is told what enters"},
        "stream": {"action": "store_true", "help": "results go to the launcher, too"},
        "fps": {"type": _positive_float, "help": "frames that arrive per second (default: pulled)"},
        "pull": {"action": "store_true", "help": "read a video as fast as frames are taken"},
        "arrivals": {"type": Path, "help": "file with the time of each arrival, in seconds"},
        "samples_per_query": {
            "type": _positive_int,
            "help": "frames arrive so many at once, when those before have come out",
        },
        "window": {"type": _positive_int, "help": "most frames inside the pipeline"},
        "switch": {
            "choices": ("auto", "normal", "surge"),
            "help": "which route frames take, if there are two",
        },
        "normal_fps": {"type": _positive_float, "help": "what the normal route can handle"},
        "surge_queue": {"type": _positive_int, "help": "so many waiting frames begin a surge"},
        "surge_above": {"type": _positive_float, "help": "so do arrivals above this share of it"},
        "normal_below": {"type": _positive_float, "help": "below this share a surge ends"},
        "normal_after_s": {"type": _positive_float, "help": "after so many seconds"},
        "queue": {"type": _positive_int, "help": "frames that may wait with --fps"},
        "frame_timeout_s": {"type": _positive_float, "help": "seconds per segment and frame"},
        "start_timeout_s": {"type": _positive_float, "help": "seconds until frame 0"},
        "seed": {"type": int, "help": "random seed"},
        "overflow": {"choices": ("fail", "drop"), "help": "if --fps is too fast"},
        "exact": {"action": "store_true", "help": "engines without graph optimisation"},
        "skip_failed": {"action": "store_true", "help": "go on after a frame that fails"},
        "latency": {
            "action": "store_true",
            "help": "wake before frames are due, use more processor time",
        },
        "layout": {"choices": ("nchw", "nhwc"), "help": "of image inputs"},
        "size": {"type": _size, "help": "HxW: resize images to this, then cut the middle out"},
        "keep_size": {"action": "store_true", "help": "resize no image"},
        "mean": {"type": _floats, "help": "subtracted from pixels (0 to 255)"},
        "scale": {"type": _floats, "help": "multiplies the difference"},
        "results": {"type": Path, "help": "file for the outputs"},
        "report": {"type": Path, "help": "JSON file for the measurements"},
        "events": {"type": Path, "help": "folder for what each rank does, event by event"},
        "events_kept": {"type": _positive_int, "help": "events that a rank keeps"},
        "record": {"type": Path, "help": "folder for the tensors of some frames"},
        "record_first": {"type": _natural_int, "help": "the first of them"},
        "record_frames": {"type": _positive_int, "help": "how many of them"},
        "operators": {"action": "store_true", "help": "with --events: operators, too"},
        "quiet": {"action": "store_true", "help": "print no summary at the end"},
        "progress": {"action": "store_true", "help": "print lines 'completed N'"},
    }


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_s').replace('_', '-')}"


def _value(options: RunOptions, name: str) -> Any:
    part = options.preprocessing if name in _PIXELS else options
    return getattr(part, name)


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
    usual = RunOptions()
    for name, how in _settings().items():
        if "type" in how:
            how["metavar"] = name.removesuffix("_s").upper()
        parser.add_argument(_flag(name), dest=name, default=_value(usual, name), **how)
    for name, text in _SWITCHES.items():
        parser.add_argument(f"--no-{name}", dest=name, action="store_false", help=text)
    given = vars(parser.parse_args(arguments))
    return RunOptions(
        inputs=tuple(given.pop("input") or usual.inputs),
        preprocessing=Preprocessing(**{name: given.pop(name) for name in _PIXELS}),
        **given,
    )


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
