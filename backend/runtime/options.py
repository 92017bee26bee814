"""What the user may choose when a job is started: the driver's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .sources.images import Preprocessing

__all__ = ["RunOptions", "parse_options"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run of a job."""

    inputs: tuple[str, ...] = ("random",)
    """``random``, an ``.npz`` file, or image files and folders."""
    frames: int | None = None
    """How many frames; ``None``: as many as the input has, 100 for ``random``."""
    seed: int = 0
    """Of ``random``."""
    fps: float | None = None
    """Frames that arrive per second; ``None``: as fast as they are taken."""
    overflow: str = "fail"
    """``fail`` or ``drop``: what happens to a timed frame that finds the queue full."""
    queue: int | None = None
    """How many timed frames may wait; ``None``: those of a second, or ``window`` if more."""
    window: int | None = None
    """Frames inside the pipeline at most; ``None``: the plan's default."""
    exact: bool = False
    """Engines run without graph optimisation, so that slicing changes no bit."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    results: Path = Path("results.bin")
    """File on the sink's board to which outputs are appended."""
    report: Path | None = None
    """JSON file on the sink's board with the measurements of all ranks."""
    progress: bool = False
    """The sink prints lines ``completed N`` to stdout as the run goes on."""
    latency: bool = False
    """Look for messages without long pauses: lower latency, more processor time."""
    start_timeout_s: float | None = None
    """Time until all ranks must be ready for frame 0; ``None``: 120 s."""
    frame_timeout_s: float | None = None
    """Time that a segment may take for one frame; ``None``: 30 s, or 20 times the slowest."""
    bind: bool = True
    """Bind each rank to its cores."""

    def to_arguments(self) -> list[str]:
        """Return the command line that :func:`parse_options` reads as these options."""
        # With "=", for a value that begins with a dash must not be taken for a flag.
        arguments = [f"--input={name}" for name in self.inputs]
        numbers = {
            "--frames": self.frames,
            "--fps": self.fps,
            "--window": self.window,
            "--queue": self.queue,
            "--frame-timeout": self.frame_timeout_s,
            "--start-timeout": self.start_timeout_s,
        }
        for flag, number in numbers.items():
            if number is not None:
                arguments.append(f"{flag}={number}")
        if self.seed:
            arguments.append(f"--seed={self.seed}")
        if self.overflow != "fail":
            arguments.append(f"--overflow={self.overflow}")
        arguments += ["--exact"] if self.exact else []
        arguments += ["--latency"] if self.latency else []
        arguments += self._preprocessing_arguments()
        arguments.append(f"--results={self.results}")
        arguments += [f"--report={self.report}"] if self.report else []
        arguments += ["--progress"] if self.progress else []
        return arguments if self.bind else [*arguments, "--no-bind"]

    def _preprocessing_arguments(self) -> list[str]:
        chosen, default = self.preprocessing, Preprocessing()
        texts = {
            "--layout": (chosen.layout, default.layout),
            "--size": ("x".join(map(str, chosen.size or ())), ""),
            "--mean": (",".join(map(repr, chosen.mean)), ",".join(map(repr, default.mean))),
            "--scale": (",".join(map(repr, chosen.scale)), ",".join(map(repr, default.scale))),
        }
        return [f"{flag}={text}" for flag, (text, usual) in texts.items() if text != usual]


def parse_options(arguments: Sequence[str] | None = None) -> RunOptions:
    """Return the options that the driver was started with; exits with 2 if they make no sense."""
    parser = argparse.ArgumentParser(
        prog="driver.py",
        description="One rank of a pipeline. Start it with: mpirun ... python driver.py",
    )
    add = parser.add_argument
    add("--input", action="append", metavar="random|FILE.npz|IMAGE|FOLDER", help="frames to run")
    add("--frames", type=_natural_int, help="number of frames")
    add("--seed", type=int, default=0, help="seed of random frames")
    add("--fps", type=_positive_float, help="frames that arrive per second (default: pulled)")
    add("--overflow", choices=("fail", "drop"), default="fail", help="if --fps is too fast")
    add("--queue", type=_positive_int, help="frames that may wait with --fps")
    add("--window", type=_positive_int, help="most frames inside the pipeline")
    add("--exact", action="store_true", help="engines without graph optimisation")
    add("--layout", choices=("nchw", "nhwc"), default="nchw", help="of image inputs")
    add("--size", type=_size, metavar="HxW", help="resize images to this, then cut the middle out")
    add("--mean", type=_floats, default=(0.0,), help="subtracted from pixels (0 to 255)")
    add("--scale", type=_floats, default=(1 / 255,), help="multiplies the difference")
    add("--results", type=Path, default=Path("results.bin"), help="file for the outputs")
    add("--report", type=Path, help="JSON file for the measurements")
    add("--progress", action="store_true", help="print lines 'completed N'")
    add("--latency", action="store_true", help="see messages sooner, use more processor time")
    add("--start-timeout", type=_positive_float, help="seconds until frame 0")
    add("--frame-timeout", type=_positive_float, help="seconds per segment and frame")
    add("--no-bind", action="store_true", help="leave the ranks' cores as mpirun set them")
    given = parser.parse_args(arguments)
    return RunOptions(
        inputs=tuple(given.input or ("random",)),
        frames=given.frames,
        seed=given.seed,
        fps=given.fps,
        overflow=given.overflow,
        queue=given.queue,
        window=given.window,
        exact=given.exact,
        preprocessing=Preprocessing(given.layout, given.size, given.mean, given.scale),
        results=given.results,
        report=given.report,
        progress=given.progress,
        latency=given.latency,
        start_timeout_s=given.start_timeout,
        frame_timeout_s=given.frame_timeout,
        bind=not given.no_bind,
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
