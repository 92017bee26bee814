"""What the options of ``build`` say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rankslice.backend.runtime.options import Preprocessing
from rankslice.frontend.formats.given_sizes import NO_SIZES, GivenSizes


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What the options of ``build`` say about the types of converted sub-models."""

    kind: str = "float32"
    """One of :data:`rankslice.frontend.formats.conversion.KINDS`."""
    representative: Path | None = None
    """For ``int8``, and for bounds of an ONNX model: an ``.npz`` file, or a folder of images."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    """Of these images."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What the options of ``build`` say."""

    quantisation: Quantisation = field(default_factory=Quantisation)
    """Types of a Keras model's sub-models."""
    sizes: GivenSizes = NO_SIZES
    """What is given of sizes that the model leaves open."""
    share_cores: bool = False
    """Let several ranks have the same cores."""
    source_board: str | None = None
    """Board where frames enter; that of the first layer by default."""
    surge: Path | None = None
    """A second mapping file: the way of frames while more come than the usual one can handle."""
    profile: Path | None = None
    """A profile of the model: it decides weights of ranks in turn that a mapping leaves open."""
    video: bool = False
    """Frames may come from videos and cameras: their board gets what reads them."""
    literally: bool = False
    """Leave normalisations of a Keras model on the ranks that the mapping says, instead of on
    those of the layers into which converting would merge them."""
    force: bool = False
    """Replace a build folder."""
    archive: bool = False
    """Also write each package as a ``.tar``."""
    wheels: str = ""
    """A folder of wheels, or ``download``: what boards install goes into their packages."""
    survive: tuple[str, ...] = ()
    """Boards that may be lost, or ``all``: for each a build folder without it is made, too."""
    standby: bool = False
    """Check that all of them fit into the boards' memory at once."""
