"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer import Argument, Option

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.output_file import PAGE, RESULT, STDOUT, Kind, check_output, is_null

if TYPE_CHECKING:
    from rankslice.backend.runtime.options import Preprocessing
    from rankslice.frontend.formats.given_sizes import GivenSizes

_MAX_DIGITS = 18
"""Of a size: model files hold 64-bit integers."""


_Callback: TypeAlias = Callable[[typer.CallbackParam, Path | None], Path | None]


def writes(
    kind: Kind | None = None, *, may_be_stream: bool = True, is_checked_later: bool = False
) -> _Callback:
    """Return the callback of an option that names a file to write.

    What cannot be written is refused before the work is done, and not after it.

    Args:
        kind: of the files that may be replaced; ``None``: any ordinary file.
        may_be_stream: whether it may go to standard output or ``/dev/null``.
        is_checked_later: the command calls :func:`check_output` itself.
    """

    def check(param: typer.CallbackParam, file: Path | None) -> Path | None:
        if file is None or is_checked_later:
            return file
        return check_output(file, _option(param), kind, may_be_stream=may_be_stream)

    return check


def is_written(param: Any) -> bool:
    """Return whether an option names a file that its command writes."""
    callback = getattr(param.callback, "__wrapped__", None)
    return getattr(callback, "__qualname__", "").startswith(f"{writes.__name__}.")


def refuse_shared_files(context: typer.Context) -> None:
    """Raise if an option of this command names a file to write that another option names, too.

    Results would be lost, or an input.
    """
    named = [
        (_option(param), param, str(value))
        for param in context.command.params
        for value in _values(context.params.get(param.name))
    ]
    for (option, param, name), (other, beside, other_name) in itertools.combinations(named, 2):
        are_written = [is_written(param), is_written(beside)]
        # 'probe --check F' writes no platform file, whatever name that would have.
        is_sure = all(are_written) or not any(_is_default(context, p) for p in (param, beside))
        if Path(name) == STDOUT and not all(are_written):  # for what is read it is standard input
            continue
        if any(are_written) and is_sure and _is_one_file(name, other_name):
            found = f"is named by both {option} and {other}"
            place = "standard output" if Path(name) == STDOUT else name
            raise RankSliceError(Mistake(place, found, "expected a separate file for each"))


def _is_default(context: typer.Context, param: Any) -> bool:
    return str(context.get_parameter_source(param.name)).endswith("DEFAULT")


def _option(param: Any) -> str:
    name = str(param.opts[0])
    return name if name.startswith("-") else name.upper()


def _values(value: Any) -> Sequence[Any]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if type(each) is str or isinstance(each, Path)]


def _is_one_file(name: str, other: str) -> bool:
    if is_null(Path(name)):
        return False
    return name == other or os.path.realpath(name) == os.path.realpath(other)


# readable=False, here and below: commands report unreadable files like any other mistake.
Json = Annotated[
    Path | None,
    Option(
        "--json",
        help="Write the result as JSON; '-': standard output.",
        callback=writes(RESULT),
        readable=False,
    ),
]
Html = Annotated[
    Path | None,
    Option(
        "--html",
        help="Write the result as an HTML page, in one file; '-': standard output.",
        callback=writes(PAGE),
        readable=False,
    ),
]
Survive = Annotated[
    bool,
    Option("--survive", help="Continue without a lost board; OUT must be built with --survive."),
]
Standby = Annotated[
    bool,
    Option(
        "--standby",
        help="With --survive: keep successor jobs loaded, so they can take over at once.",
    ),
]

SshConfig = Annotated[
    Path | None, Option(readable=False, help="ssh configuration file (default: ssh's own).")
]
Boards = Annotated[str, Option(help="Platform file (YAML or .txt), or 'local' for this machine.")]
Shape = Annotated[
    list[str] | None,
    Option(
        help="Fix open sizes for all frames: those of an input (IN=1,3,224,224) or a named size"
        " (batch=1)."
    ),
]
AtMost = Annotated[
    list[str] | None,
    Option(
        help="Bounds of open sizes: those of any tensor (boxes=100,4) or of a named size (seq=128)."
    ),
]


BuildFolder = Annotated[Path, Argument(metavar="OUT", readable=False, help="Build folder.")]
OnnxOrTflite = Annotated[Path, Argument(readable=False, help="Model: .onnx or .tflite.")]
Fps = Annotated[
    float | None,
    Option(min=1e-3, max=1e9, help="Frame rate of the source (default: as fast as possible)."),
]
Arrivals = Annotated[
    Path | None,
    Option(
        readable=False, help="Instead of --fps: file with one arrival time in seconds per line."
    ),
]
Surge = Annotated[
    Path | None,
    Option(
        readable=False,
        help="Second mapping file: the route of frames while they arrive faster than the ranks of"
        " --mapping can handle.",
    ),
]
Window = Annotated[
    int | None,
    Option(min=1, max=4096, help="Maximum number of frames in flight (default: longest path + 1)."),
]
FrameTimeout = Annotated[
    float | None,
    Option(
        min=1,
        help="Timeout per segment and frame in seconds (default: 30, or 20 x the slowest).",
    ),
]
StartTimeout = Annotated[
    float | None, Option(min=1, help="Timeout until frame 0 in seconds (default: 120).")
]
NoDirect = Annotated[
    bool,
    Option(
        "--no-direct",
        help="Use messages instead of shared memory between ranks of one board.",
    ),
]
Mpirun = Annotated[Path | None, Option(readable=False, help="Path of Open MPI's mpirun.")]
Size = Annotated[str | None, Option(help="Resize images to HxW, then crop the centre.")]
Mean = Annotated[
    str | None, Option(help="Mean subtracted from pixels (0-255): M or R,G,B (default: 0).")
]
Scale = Annotated[
    str | None,
    Option(help="Scale factor of pixels, after --mean: S or R,G,B (default: by the input's type)."),
]


class Layout(str, Enum):
    """Order of an image's axes."""

    nchw = "nchw"
    nhwc = "nhwc"


ImageLayout = Annotated[Layout, Option(help="Layout of image inputs.")]


def refuse_with(option: str, /, **others: Any) -> None:
    """Raise if options are given that mean nothing beside another one."""
    given = [name for name, value in others.items() if value]
    if given:
        found = f"cannot be combined with {option}"
        raise RankSliceError(
            *(Mistake(f"--{name.replace('_', '-')}", found, "leave one out") for name in given)
        )


def refuse_without(context: typer.Context, option: str, *names: str) -> None:
    """Raise if options are given that mean nothing without another one, which is not given."""
    sources = {name: context.get_parameter_source(name) for name in names}
    raise_mistakes(
        Mistake(f"--{name.replace('_', '-')}", f"is given without {option}", f"also give {option}")
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    )


def parse_sizes(shape: list[str] | None, at_most: list[str] | None) -> GivenSizes:
    """Return what ``--shape`` and ``--at-most`` say."""
    from rankslice.frontend.formats.given_sizes import given_sizes

    return given_sizes(_sizes("--shape", shape), _sizes("--at-most", at_most))


def _sizes(option: str, texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the sizes of an option, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",") if sizes else []  # a scalar has no sizes
        if not name or not all(map(_is_number, parts)):
            raise typer.BadParameter(
                f"{text!r} is not of the form IN=1,3,224,224", param_hint=option
            )
        if name in found:
            raise RankSliceError(Mistake(f"{option} {name}", "is given twice", "leave one out"))
        found[name] = tuple(map(int, parts))
    return found


def parse_preprocessing(
    layout: Layout,
    size: str | None,
    mean: str | None,
    scale: str | None,
    *,
    keep_size: bool = False,
) -> Preprocessing:
    """Return what ``--size``, ``--keep-size``, ``--mean`` and ``--scale`` say of images."""
    from rankslice.backend.runtime.options import Preprocessing

    if keep_size:
        refuse_with("--keep-size", size=size)
    numbers = _numbers("--mean", mean), _numbers("--scale", scale)
    return Preprocessing(layout.value, _size(size), *numbers, keep_size=keep_size)


def _size(text: str | None) -> tuple[int, int] | None:
    """Return the height and width of ``--size``, in pixels; one number stands for both."""
    if text is None:
        return None
    height, _, width = text.partition("x")
    sides = (height, width or height)
    if not all(_is_number(side) and int(side) for side in sides):
        raise typer.BadParameter(f"{text!r} is not of the form HxW", param_hint="--size")
    return int(sides[0]), int(sides[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Return the numbers of an option, which commas separate; ``()``: it is not given."""
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint=option) from None
