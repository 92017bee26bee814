"""Options that several commands have, each once; those of a run are ``RunOptions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.output_file import PAGE, RESULT
from rankslice.framework.option_records import Writes, about, option
from rankslice.framework.specs.read_mapping import mapping_of
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.framework.wording import quoted

if TYPE_CHECKING:
    from rankslice.frontend.formats.input_shapes import GivenSizes
    from rankslice.session.building.planning import MakeMapping

_MAX_DIGITS = 18
"""Of a size: model files hold 64-bit integers."""

MappingSource: TypeAlias = str | Path | Mapping[str, Sequence[str | Mapping[str, object]]]
"""A mapping file, or its keys with their layers and parts of layers."""

Sizes: TypeAlias = Mapping[str, int | Sequence[int]]
"""Sizes by the name of a tensor (``{"image": (1, 3, 224, 224)}``) or of a size (``{"n": 8}``)."""

BuildFolder = Annotated[Path, about("Build folder.", Path, is_argument=True, metavar="OUT")]
OnnxOrTflite = Annotated[
    Path,
    about(
        "Model: .onnx, .tflite, a SavedModel folder, or a parts file (.yaml).",
        Path,
        is_argument=True,
    ),
]
Boards = Annotated[
    PlatformSource, about("Platform file (YAML or .txt), or 'local' for this machine.", str)
]
Json = Annotated[
    Path | None,
    about("Write the result as JSON; '-': standard output.", Path, writes=Writes(RESULT)),
]
Html = Annotated[
    Path | None,
    about(
        "Write the result as an HTML page, in one file; '-': standard output.",
        Path,
        writes=Writes(PAGE),
    ),
]


_SSH_CONFIG = about("ssh configuration file (default: ssh's own).", Path, is_executed=True)
SshConfig = Annotated[Path | None, _SSH_CONFIG]


@dataclass(frozen=True, slots=True)
class Launching:
    mpirun: Path | None = option(None, "Path of Open MPI's mpirun.", Path, is_executed=True)
    ssh_config: Path | None = field(default=None, metadata=_SSH_CONFIG)


DEFAULT_LAUNCHING = Launching()


@dataclass(frozen=True, slots=True)
class Surviving:
    """Whether a job goes on without a board that is lost."""

    survive: bool = option(
        False,
        "Continue without a lost board; OUT must be built with --survive.",
        # Frames are read and timed here, a job that survives has one route, and several mpirun
        # lines.
        excludes=("arrivals", "normal_fps", "surge_queue", "latency", "dry_run"),
    )
    standby: bool = option(
        False,
        "With --survive: keep successor jobs loaded, so they can take over at once.",
        needs="survive",
    )


NOT_SURVIVING = Surviving()


def _sizes_of(option: str, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    by_name: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",") if sizes else []  # a scalar has no sizes
        if not name or not all(map(is_number, parts)):
            raise ValueError(f"{text!r} is not of the form IN=1,3,224,224")
        if name in by_name:
            raise RankSliceError(Mistake(f"{option} {name}", "is given twice", "leave one out"))
        by_name[name] = tuple(map(int, parts))
    return by_name


def is_number(text: str) -> bool:
    """Return whether a text is a natural number of at most 18 digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """What is said of a model that its file leaves open: its sizes, and the function to slice."""

    shape: Sizes | None = option(
        None,
        "Fix open sizes for all frames: those of an input (IN=1,3,224,224) or a named size"
        " (batch=1).",
        many=partial(_sizes_of, "--shape"),
    )
    at_most: Sizes | None = option(
        None,
        "Bounds of open sizes: those of any tensor (boxes=100,4) or of a named size (seq=128).",
        many=partial(_sizes_of, "--at-most"),
    )
    signature: str = option(
        "", "SavedModel: the signature to slice (default: serving_default, or the only one).", str
    )

    @property
    def given(self) -> GivenSizes:
        """The sizes as readers of models take them.

        Raises:
            RankSliceError: sizes are no natural numbers, or the two options contradict each other.
        """
        from rankslice.frontend.formats.input_shapes import given_sizes

        fixed, at_most = _as_tuples("shape", self.shape), _as_tuples("at_most", self.at_most)
        return given_sizes(fixed, at_most, self.signature)


def _as_tuples(option: str, sizes: Sizes | None) -> dict[str, tuple[int, ...]]:
    by_name = {n: (s,) if isinstance(s, int) else tuple(s) for n, s in (sizes or {}).items()}
    raise_mistakes(
        Mistake(f"{option} {quoted(name)}", f"found {sizes}", "expected whole numbers")
        for name, sizes in by_name.items()
        if not all(isinstance(size, int) and size >= 0 for size in sizes)
    )
    return by_name


def mapping_from(source: MappingSource) -> Path | MakeMapping:
    """Return a mapping as the commands take it.

    Raises:
        RankSliceError: it is a dictionary, and not one of keys with their layers.
    """
    if isinstance(source, (str, Path)):
        return Path(source)
    mapping = mapping_of(source)
    return lambda graph, platform: mapping


def refuse_with(option: str, /, **others: object) -> None:
    """Raise if options are given that mean nothing beside another one.

    Raises:
        RankSliceError: with all of them.
    """
    raise_mistakes(
        Mistake(f"--{name.replace('_', '-')}", f"cannot be combined with {option}", "leave one out")
        for name, value in others.items()
        if value
    )
