"""What the options of ``build`` say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rankslice.backend.runtime.job import COMPRESSIONS, Compression
from rankslice.backend.runtime.options import Preprocessing
from rankslice.framework.option_records import comma_separated, option
from rankslice.framework.platform import WIRES, Wire
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What the options of ``build`` say about the types of converted sub-models."""

    kind: str = option(
        "float32",
        "Keras: number format of the sub-models.",
        ("float32", "float16", "dynamic", "int8"),
        name="quantize",
    )
    representative: Path | None = option(
        None,
        "File or folder with representative frames: for int8, and for bounds of data-dependent"
        " sizes in an ONNX model.",
        Path,
    )
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    """Of images among these."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What the options of ``build`` say."""

    horizontal: Path | None = option(
        None,
        "AutoDiCE's second file, beside its mapping: which layers are split over several keys.",
        Path,
        excludes=("surge",),
    )
    surge: Path | None = option(
        None,
        "Second mapping file: the route of frames while they arrive faster than the ranks of"
        " --mapping can handle.",
        Path,
    )
    profile: Path | None = option(
        None,
        "Profile of the model: determines the missing weights of ranks that take turns.",
        Path,
    )
    share_cores: bool = option(False, "Allow several ranks on the same cores.")
    source_board: str | None = option(
        None, "Board where frames enter (default: that of the first layer).", str
    )
    survive: tuple[str, ...] = option(
        (),
        "Boards that 'run --survive' may lose: also plan (with --profile) and build for the"
        " remaining boards.",
        comma_separated,
        metavar="all|BOARD[,BOARD]",
    )
    standby: bool = option(
        False,
        "With --survive: check that the boards' memory suffices for all plans at once.",
    )
    sizes: GivenSizes = NO_SIZES
    """What is given of sizes that the model leaves open."""
    literally: bool = option(
        False,
        "Keras: keep normalisations on the ranks of the mapping; do not move them to the layers"
        " they merge into.",
    )
    quantisation: Quantisation = field(default_factory=Quantisation)
    wire: Wire | None = option(
        None,
        "Type of float32 tensors between boards (default: that of each link in the platform"
        " file). int8 needs --representative.",
        WIRES,
    )
    compress: Compression | None = option(
        None,
        "Compression of messages between boards (default: that of each link in the platform"
        " file). zstd needs the package zstandard on the boards.",
        COMPRESSIONS,
    )
    video: bool = option(
        False,
        "Add OpenCV to the requirements of the board where frames enter, for run --input"
        " video.mp4 or camera:0.",
    )
    force: bool = option(False, "Replace an existing build folder.")
    archive: bool = option(False, "Also write each package as a .tar file.")
    wheels: str = option(
        "",
        "Include Python wheels in the packages: from a folder, or downloaded.",
        str,
        metavar="DIR|download",
        is_executed=True,
    )
