"""What the user may choose when a job is started: the driver's command line."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from .errors import JobError
from .figures.events import USUAL_EVENTS

_T = TypeVar("_T")


def _floats(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers") from None


_MAX_DIGITS = 18
"""Of a size: model files hold 64-bit integers."""


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    sides = (height, width or height)
    if not all(s.isascii() and s.isdigit() and len(s) <= _MAX_DIGITS and int(s) for s in sides):
        raise ValueError(f"{text!r} is not of the form HxW")
    return int(sides[0]), int(sides[1])


def _input_help() -> str:
    from .sources import usage

    return f"Where frames come from: {usage()}."


def _option(usual: _T, text: str | Callable[[], str], kind: Any = None, **more: Any) -> _T:
    """Declare a field with its default, its help, and how its value is read.

    ``kind``: a function that reads it, or a tuple of the values it may have; ``None``: a flag.
    ``rankslice.framework.option_records`` explains further keywords: ``least``, for example.
    """
    value: _T = field(default=usual, metadata={"help": text, "kind": kind, **more})
    return value


def _of_job(usual: _T, text: str, kind: Any = None, **more: Any) -> _T:
    """Declare a field that what starts a job decides, and no user."""
    return _option(usual, text, kind, is_internal=True, **more)


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How an image becomes a frame: its size, and ``(pixel - mean) * scale`` of pixels of 0 to 255.

    Where neither mean nor scale is given, :mod:`.sources.image_input` decides by the type of the
    model input.
    """

    layout: str | None = _option(
        None,
        "Layout of image inputs (default: by the place of 1 or 3 channels in their shape).",
        ("nchw", "nhwc"),
    )
    size: tuple[int, int] | None = _option(
        None, "Resize images to HxW, then crop the centre.", _size, least=1
    )
    """Nothing is cut where the model leaves the size open."""
    mean: tuple[float, ...] = _option(
        (),
        "Mean subtracted from pixels (0-255): M, or one per channel in their order (default: 0).",
        _floats,
    )
    scale: tuple[float, ...] = _option(
        (),
        "Scale factor of pixels, after --mean: S, or one per channel (default: by the input's"
        " type).",
        _floats,
    )
    keep_size: bool = _option(
        False,
        "Do not resize images; for models with open height and width.",
        excludes=("size", "resize"),
    )
    channel_order: str | None = _option(
        None, "Order of the model's colour channels (default: rgb).", ("rgb", "bgr")
    )
    resize: str | None = _option(
        None,
        "stretch: images to the size; crop: keep proportions, cover the size and crop the centre;"
        " letterbox: keep proportions and pad (default: stretch).",
        ("stretch", "crop", "letterbox"),
    )
    interpolation: str | None = _option(
        None, "Filter of --resize (default: bilinear).", ("bilinear", "bicubic", "nearest")
    )
    pad: float | None = _option(
        None,
        "With --resize letterbox: value of the padding, 0 to 255 (default: 114).",
        float,
        least=0,
        most=255,
    )
    preprocess: str = _option(
        "",
        "How the network's authors preprocess images: torch, caffe, tf, or a JSON file of these"
        " options; those on the command line override it.",
        str,
    )

    def resolved(self) -> Preprocessing:
        """Return the options with those of ``preprocess`` in the place of the ones not given.

        Raises:
            JobError: it names no preset and no file of one.
        """
        if not self.preprocess:
            return self
        given = {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
        }
        preset = PRESETS.get(self.preprocess) or _read_preset(self.preprocess)
        return replace(preset, **{**given, "preprocess": ""})


PRESETS = {
    "torch": Preprocessing(
        mean=(123.675, 116.28, 103.53), scale=(1 / 58.395, 1 / 57.12, 1 / 57.375)
    ),
    "caffe": Preprocessing(mean=(103.939, 116.779, 123.68), scale=(1.0,), channel_order="bgr"),
    "tf": Preprocessing(mean=(127.5,), scale=(1 / 127.5,)),
}
"""By the names of Keras' modes of ``preprocess_input``; the means of ``caffe`` are in BGR order."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run of a job."""

    inputs: tuple[str, ...] = _option(("random",), _input_help, str, many=tuple, name="input")
    """What names the source: ``random``, or files."""
    frames: int | None = _option(
        None,
        "Number of frames (default: all; 100 for random input).",
        int,
        least=0,
    )
    unlimited: bool = _of_job(False, "random frames without end")
    drain: bool = _of_job(False, "the launcher may end the stream")
    announce: bool = _of_job(False, "the launcher is told what enters: number, time and name")
    stream: bool = _of_job(False, "results go to the launcher, too, as they come")
    seed: int = _option(0, "Random seed.", int, least=0)
    fps: float | None = _option(
        None,
        "Frame rate of the source (default: as fast as possible).",
        float,
        least=1e-3,
        most=1e9,
        excludes=("period_ms", "arrivals"),
    )
    pull: bool = _option(
        False,
        "Read a video as fast as possible, not at its own frame rate.",
        excludes=("fps", "period_ms", "arrivals"),
    )
    arrivals: Path | None = _option(
        None,
        "Instead of --fps: file with one arrival time in seconds per line.",
        Path,
        excludes=("period_ms",),
    )
    samples_per_query: int | None = _of_job(
        None, "frames arrive so many at once, when those before have come out", int, least=1
    )
    overflow: str = _option(
        "fail", "What to do when frames arrive faster than they are processed.", ("fail", "drop")
    )
    queue: int | None = _option(
        None,
        "Maximum number of waiting frames, if they arrive on a schedule (default: those of one"
        " second).",
        int,
        least=1,
    )
    window: int | None = _option(
        None,
        "Maximum number of frames in flight (default: longest path + 1).",
        int,
        least=1,
        most=4096,
    )
    switch: str = _option(
        "auto",
        "For a build with --surge: route of the frames; auto: the surge route while frames arrive"
        " faster than the normal one can handle.",
        ("auto", "normal", "surge"),
    )
    normal_fps: float | None = _option(
        None,
        "Frame rate that the normal route can handle (default: measured while frames wait).",
        float,
        least=1e-3,
        most=1e9,
    )
    surge_queue: int | None = _option(
        None,
        "Number of waiting frames that starts a surge (default: 8 or 2 x window, at most half of"
        " --queue).",
        int,
        least=2,
        up_to="queue",
    )
    surge_above: float = _option(
        0.9,
        "A surge starts if the arrival rate exceeds this share of the normal route's rate.",
        float,
        least=0.01,
        most=10,
    )
    normal_below: float = _option(
        0.7,
        "A surge ends if the arrival rate stays below this share of the normal route's rate and"
        " few frames wait.",
        float,
        least=0.01,
        most=10,
        below="surge_above",
    )
    normal_after_s: float = _option(
        1.0,
        "Seconds for which both must hold before a surge ends.",
        float,
        least=0.01,
        most=1e6,
    )
    exact: bool = _option(False, "Switch off the engines' graph optimisation.")
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    latency: bool = _option(False, "Wake before frames are due: lower latency, more CPU time.")
    direct: bool = _option(
        True, "Use messages instead of shared memory between ranks of one board."
    )
    results: Path = _of_job(
        Path("results.bin"), "file on the sink's board to which outputs are appended", Path
    )
    skip_failed: bool = _option(
        False,
        "Leave out frames on which an engine fails or which cannot be read, and tell them; by"
        " default, such a frame ends the run.",
    )
    report: Path | None = _of_job(
        None, "JSON file on the sink's board with the measurements of all ranks", Path
    )
    events: Path | None = _of_job(
        None, "folder, on each board, for what each rank does, event by event", Path
    )
    """``None``: each rank keeps its last ones in a file that goes with the job."""
    events_kept: int = _of_job(USUAL_EVENTS, "events that each rank keeps", int, least=1)
    record: Path | None = _option(
        None,
        "Record the tensors that ranks exchange in the first frames, in a new folder for"
        " 'rankslice replay'.",
        Path,
        metavar="DIR",
        excludes=("skip_failed",),
    )
    record_first: int = _of_job(0, "number of the first frame of --record", int, least=0)
    record_frames: int = _option(
        10, "With --record: number of frames.", int, least=1, most=1_000_000, needs="record"
    )
    operators: bool = _of_job(False, "with --events: also when operators ran, if the engine tells")
    quiet: bool = _of_job(False, "print no summary at the end")
    progress: bool = _of_job(False, "print lines 'completed N'")
    start_timeout_s: float | None = _option(
        None, "Timeout until frame 0 in seconds (default: 120).", float, least=1e-3
    )
    frame_timeout_s: float | None = _option(
        None,
        "Timeout per segment and frame in seconds (default: 30, or 20 x the slowest).",
        float,
        least=1e-3,
    )
    bind: bool = _of_job(True, "leave cores as mpirun set them")

    def to_arguments(self) -> list[str]:
        """Write the command line that :func:`parse_options` reads as these options."""
        # With "=", for a value that begins with a dash must not be taken for a flag.
        arguments = [f"--input={name}" for name in self.inputs]
        preprocessing = self.preprocessing.resolved()
        for name, metadata, usual in _OPTIONS:
            value = getattr(preprocessing if name in IMAGE_OPTIONS else self, name)
            if value != usual or name == "results":
                flag = _flag(name, usual)
                arguments.append(
                    flag if metadata["kind"] is None else f"{flag}={_text(name, value)}"
                )
        return arguments


IMAGE_OPTIONS = tuple(option.name for option in fields(Preprocessing))
_OF_PRESETS = {
    option.name: option.metadata for option in fields(Preprocessing) if option.name != "preprocess"
}
"""Metadata of the options that a file of a preset may have."""
_MAX_PRESET_BYTES = 1 << 16
_OPTIONS = [
    (option.name, option.metadata, option.default)
    for option in (*fields(RunOptions), *fields(Preprocessing))
    if option.metadata and option.name != "inputs"
]
"""Name, metadata and default of each option but ``--input``."""


def _flag(name: str, usual: object) -> str:
    off = "no-" if usual is True else ""
    return f"--{off}{name.removesuffix('_s').replace('_', '-')}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ("x" if name == "size" else ",").join(map(repr, value))
    return str(value)


def _reader(metadata: Mapping[str, Any]) -> Callable[[str], Any]:
    """Make the reader of a value; rates and times need but be positive here."""

    def read(text: str) -> Any:
        try:
            value = metadata["kind"](text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        is_wrong = isinstance(value, int) and value < metadata["least"]
        if is_wrong or (isinstance(value, float) and not 0 < value < math.inf):
            raise argparse.ArgumentTypeError(f"{text} is too small, or not finite")
        return value

    return read


def _read_preset(file: str) -> Preprocessing:
    """Read a JSON object of options, by the names of the fields of :class:`Preprocessing`."""
    from .sources import open_ordinary

    where = f"--preprocess {file}"
    try:
        with open_ordinary(Path(file)) as opened:
            values = json.loads(opened.read(_MAX_PRESET_BYTES))
    except (OSError, JobError, ValueError, RecursionError):
        raise JobError(
            f"{where}: is not one of {', '.join(PRESETS)}, and no JSON file that can be read"
        ) from None
    return preset_of(values, where)


def preset_of(values: object, where: str) -> Preprocessing:
    """Convert a JSON object of options, by the names of the fields of :class:`Preprocessing`.

    Those that are ``null`` or empty lists are as if they were not there.

    Raises:
        JobError: it is no such object.
    """
    if not isinstance(values, dict):
        raise JobError(f"{where}: is not a JSON object; expected one with {', '.join(_OF_PRESETS)}")
    read: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _OF_PRESETS:
            raise JobError(f"{where}: no option {name!r}; expected {', '.join(_OF_PRESETS)}")
        if value is None or value == []:
            continue
        try:
            read[name] = _preset_value(name, value, _OF_PRESETS[name])
        except (ValueError, TypeError):
            raise JobError(f"{where}: {name} cannot be {json.dumps(value)[:60]}") from None
    return Preprocessing(**read)


def _preset_value(name: str, value: Any, metadata: Mapping[str, Any]) -> Any:
    """Read a value of a file as on the command line; lists have numbers.

    Raises:
        ValueError: the option cannot have it.
    """
    kind = metadata["kind"]
    if kind is None or isinstance(kind, tuple):
        if type(value) is not bool if kind is None else value not in kind:
            raise ValueError
        return value
    text = _text(name, tuple(value) if isinstance(value, list) else value)
    read = kind(text)
    least, most = metadata.get("least", -math.inf), metadata.get("most", math.inf)
    numbers = read if isinstance(read, tuple) else (read,)
    if not all(math.isfinite(number) and least <= number <= most for number in numbers):
        raise ValueError
    return read


def parse_options(arguments: Sequence[str] | None = None) -> RunOptions:
    """Parse the command line of the driver; exits with 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="driver.py",
        description="One rank of a pipeline. Start it with: mpirun ... python driver.py",
    )
    parser.add_argument("--input", action="append", help=_input_help())
    for name, metadata, usual in _OPTIONS:
        kind = metadata["kind"]
        if kind is None:
            how: dict[str, Any] = {"action": "store_false" if usual else "store_true"}
        elif isinstance(kind, tuple):
            how = {"choices": kind}
        else:
            how = {"type": _reader(metadata), "metavar": name.removesuffix("_s").upper()}
        parser.add_argument(
            _flag(name, usual), dest=name, default=usual, help=metadata["help"], **how
        )
    values = vars(parser.parse_args(arguments))
    return RunOptions(
        inputs=tuple(values.pop("input") or RunOptions().inputs),
        preprocessing=Preprocessing(**{name: values.pop(name) for name in IMAGE_OPTIONS}),
        **values,
    )
