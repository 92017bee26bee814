"""What a build folder has for the loss of boards: the record of ``survival.json``, and its files.

``without/edge02`` is the build folder for the other boards; ``survival/`` has what planning for
further losses needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import COMPRESSED
from rankslice.backend.runtime.options import Preprocessing, preset_of
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.reading.records import Only, read_document
from rankslice.framework.specs.platform_names import name_complaints
from rankslice.framework.wording import quoted
from rankslice.session.build_folder import SURVIVAL, WITHOUT, is_build_folder, read_plan

FORMAT = "rankslice-survival"
VERSION = 3

PROFILE = "profile.json"
PLATFORMS = ("platform.yaml", "platform.txt")
REPRESENTATIVE = "representative"
"""The link that leads to the frames of ``build --representative``."""

_BUILD = "build it again, with --survive"
_BOARD = Only(lambda name: not name_complaints(board=name), "the name of a board")


@dataclass(frozen=True, slots=True)
class Fallback:
    board: Annotated[str, _BOARD]
    predicted_fps: float
    """Frames per second, by the cost model."""


def _is_preset(values: dict[str, object]) -> bool:
    try:
        preset_of({name: value for name, value in values.items() if name != "preprocess"}, "")
    except JobError:
        return False
    return not values["preprocess"]


@dataclass(frozen=True, slots=True)
class BuiltWith:
    platform: Annotated[str, Only(PLATFORMS.__contains__, "a platform file's name")]
    shape: dict[str, tuple[int, ...]]
    at_most: dict[str, tuple[int, ...]]
    share_cores: bool
    source_board: str | None
    literally: bool
    quantize: str
    compress: Annotated[str | None, COMPRESSED]
    pixels: Annotated[Preprocessing, Only(_is_preset, "options of images")]
    most_turns: int
    """How many ranks may take turns: as many as in the mapping."""


@dataclass(frozen=True, slots=True)
class SurvivalRecord:
    model_sha256: str
    standby: bool
    """Whether the memory of the boards was checked for all plans at once."""
    predicted_fps: float | None
    """Of the plan with all boards; absent: the profile does not know all of its accelerators."""
    fallbacks: tuple[Fallback, ...]
    options: BuiltWith


@dataclass(frozen=True, slots=True)
class Survival:
    """Which boards a build folder may lose, and what takes over."""

    folder: Path
    record: SurvivalRecord

    @property
    def boards(self) -> frozenset[str]:
        return frozenset(self.folders)

    @property
    def folders(self) -> dict[str, Path]:
        """The build folder for the loss of each board."""
        boards = (fallback.board for fallback in self.record.fallbacks)
        return {board: without(self.folder, [board]) for board in boards}

    def fallback(self, lost: frozenset[str]) -> Path | None:
        """Return the build folder for the loss of these boards; ``None``: there is none yet."""
        folder = without(self.folder, lost)
        return folder if lost and is_build_folder(folder) else None


def fallback_lines(survival: Survival) -> Iterator[str]:
    """Yield a line for each board that may be lost: what is left, and how fast it is."""
    from rankslice.exploration.objectives import rate_text  # loads all that explores

    record = survival.record
    now = "" if record.predicted_fps is None else f" (now {rate_text(record.predicted_fps)})"
    for fallback in record.fallbacks:
        count = len(read_plan(survival.folders[fallback.board]).ranks)
        yield (
            f"without {fallback.board}: {count} rank{'s'[: count > 1]}, predicted"
            f" {rate_text(fallback.predicted_fps)} frames/s{now}"
        )


def without(folder: Path, lost: Iterable[str]) -> Path:
    """Return the path of the build folder for the loss of some boards; no name has a ``+``."""
    return folder / WITHOUT / "+".join(sorted(lost))


def find_survival(folder: Path) -> Survival | None:
    file = folder / SURVIVAL
    if not file.is_file():
        return None
    text, where = read_text(file, "a record of fallbacks"), str(file)
    record = read_document(
        SurvivalRecord, text, where, "survival", VERSION, "rankslice build --survive", _BUILD
    )
    survival = Survival(folder, record)
    plan = read_plan(folder)
    if survival.record.model_sha256 != plan.model.sha256:
        found = f"belongs to another {quoted(plan.model.name)} than the plan"
        raise RankSliceError(Mistake(where, found, _BUILD))
    for fallback in survival.folders.values():
        read_plan(fallback)
    return survival


def read_survival(folder: Path) -> Survival:
    read_plan(folder)
    survival = find_survival(folder)
    if survival is None:
        found = "was built without --survive: it has no plan for fewer boards"
        hint = "build it again, with --survive all and --profile"
        raise RankSliceError(Mistake(str(folder), found, hint))
    return survival


def write_survival(folder: Path, record: SurvivalRecord) -> None:
    value: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(record)}
    (folder / SURVIVAL).write_text(json.dumps(value, indent=1) + "\n", encoding="ascii")
