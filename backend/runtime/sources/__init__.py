"""Where frames come from: one file per kind of source, found by its name.

A file ``NAME_source.py`` in this folder defines a :class:`Source` and calls it ``SOURCE``. Nothing
else lists the kinds. Help texts import all of them, so packages are imported inside functions.
"""

from __future__ import annotations

import io
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..discovery import find_kinds
from ..errors import JobError
from .arrivals import Arrivals, EndOfStreamError as EndOfStreamError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot


class Source(ABC):
    """A source of frames.

    The launcher makes one, too, to check the options and to name frames. So making one takes no
    frame from anybody, and opens no device.
    """

    usage: ClassVar[tuple[str, ...]]
    """What ``--input`` says for this source, for help texts: ``FILE.npz``."""
    description: ClassVar[str] = ""
    """The same in messages on what is accepted; empty: not named there."""
    prefix: ClassVar[str] = ""
    """How ``--input`` begins that names this source: ``camera:``; empty: it names files."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Of the files that belong to this source, in small letters."""
    reads_files: ClassVar[bool] = True
    """Whether ``--input`` names files; they are copied to the source's board."""
    takes_several: ClassVar[bool] = False
    """Whether ``--input`` may name several."""
    is_last_resort: ClassVar[bool] = False
    """Whether it is asked after the others, as it accepts any file."""
    is_live: ClassVar[bool] = False
    """Whether frames come when the world makes them, as those of a camera do: into the
    :class:`~.arrivals.Live` arrivals that :meth:`start` gets."""

    frames: int | None = None
    """How many there are, counting ``--frames``; ``None``: unknown before the end."""
    can_replay: bool = False
    """Whether each frame can be read again, in any order, and on another machine."""
    fps: float | None = None
    """How many frames arrive per second, unless the options say otherwise; ``None``: they are
    read as fast as they are taken."""
    names_late: bool = False
    """Whether only the source on its board knows what frames are called, once it has read them."""
    waited_s: float = 0.0
    """Seconds that :meth:`read` has waited for frames to come, in all."""

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        """Return whether ``--input`` names this source: by the prefix, or by files and a suffix."""
        if cls.prefix:
            return any(name.startswith(cls.prefix) for name in inputs)
        paths = [Path(name) for name in inputs]
        return all(path.exists() for path in paths) and any(
            path.suffix.lower() in cls.suffixes for path in paths
        )

    @abstractmethod
    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        """Check the options against the model's inputs.

        Raises:
            JobError: they do not fit.
        """

    def start(self, arrivals: Arrivals) -> None:  # noqa: B027 - most have nothing to do
        """Open what frames come from: on the source's board, before frame 0.

        Raises:
            JobError: it cannot be opened.
        """

    @abstractmethod
    def read(self, index: int, slots: Sequence[Slot]) -> None:
        """Write frame ``index`` into the slots, one per model input; it may wait for the frame.

        The slots of inputs with open sizes are given the frame's shape.

        A source that cannot be replayed is asked for rising numbers. It passes over those left
        out, which ``--overflow drop`` has dropped.

        Raises:
            EndOfStreamError: there is no such frame.
            FrameError: it cannot be read, but the next one can.
            JobError: it cannot be read.
        """

    def lent(self, limit: int) -> Sequence[Sequence[NDArray[Any]]]:
        """Return, by model input, the arrays of all frames that there are, if they stay in memory.

        Frames beyond their number begin again at the first. None are returned if sizes are open,
        or if there are more than ``limit``.
        """
        return ()

    def label(self, index: int) -> str:
        """Return a name of frame ``index`` for users: its file, say."""
        return f"frame {index}"

    def note(self) -> str:
        """Return a note for the user, printed before the start; empty: there is none."""
        return ""

    def end(self) -> None:  # noqa: B027 - most never wait
        """Let :meth:`read` wait no longer: it raises ``EndOfStreamError``. Any thread calls it."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Release what was opened."""


class FileSource(Source):
    """Frames that lie in files; beyond their number they begin again at the first."""

    can_replay = True
    frames: int

    def _count_frames(self, count: int, options: RunOptions) -> None:
        self._count = count
        self.frames = count if options.frames is None else options.frames


def write_frame(values: Iterable[NDArray[Any]], slots: Iterable[Slot]) -> None:
    """Copy a frame's values, by model input, into its slots.

    Raises:
        JobError: an input cannot have their shape.
    """
    from ..sizes import shaped

    for array, slot in zip(values, slots, strict=True):
        shaped(slot, array.shape)[...] = array


def refuse_unknown_inputs(where: str, present: Iterable[str], inputs: Sequence[Tensor]) -> None:
    """Refuse the names of values, in a place that messages name, that no model input has.

    Raises:
        JobError: there are such names; nothing would read their values.
    """
    names = [spec.name for spec in inputs]
    for name in present:
        if name not in names:
            raise JobError(
                f"{where}: has values for {name!r}, and the model's inputs are"
                f" {', '.join(map(repr, names))}: leave them out; if the model's file has a default"
                " for this input, build with --shape NAME=SIZES"
            )


def only_input(options: RunOptions, inputs: Sequence[Tensor]) -> Tensor:
    """Return the only model input, for sources that feed no more.

    Raises:
        JobError: there are several.
    """
    if len(inputs) != 1:
        raise JobError(
            f"--input: {options.inputs[0]} feeds models of one input; this one has {len(inputs)}:"
            " give an .npz file with an array for each"
        )
    return inputs[0]


def open_ordinary(path: Path) -> io.BufferedReader:
    """Return a file, opened for reading; pipes and devices are refused, as they may have no end.

    Raises:
        JobError: it cannot be read, or is not an ordinary file.
    """
    try:
        # Opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not a file name"
        raise JobError(f"{path}: cannot be read: {reason}") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise JobError(f"{path}: is not a regular file")


def source_kinds() -> list[type[Source]]:
    """Return all kinds of sources, those of last resort at the end."""
    return sorted(find_kinds(__name__, "source"), key=lambda kind: kind.is_last_resort)


def usage() -> str:
    """Return the values of ``--input``, for help texts."""
    *most, last = (form for kind in source_kinds() for form in kind.usage)
    return f"{', '.join(most)} or {last}"


def accepted() -> str:
    """Return the kinds of inputs, for messages."""
    return ", ".join(kind.description for kind in reversed(source_kinds()) if kind.description)


def find_source(inputs: Sequence[str]) -> type[Source] | None:
    """Return the kind of source that ``--input`` names; ``None``: there is none."""
    return next((kind for kind in source_kinds() if kind.accepts(inputs)), None)


def open_source(options: RunOptions, inputs: Sequence[Tensor]) -> Source:
    """Return the source that the options name.

    Raises:
        JobError: there is no such source, or it does not fit the model.
    """
    kind = find_source(options.inputs)
    if kind is None:
        missing = [name for name in options.inputs if not Path(name).exists()]
        name = (missing or options.inputs)[0]
        raise JobError(f"{name}: no such file or folder; expected {accepted()}")
    if options.inputs[1:] and not kind.takes_several:
        raise JobError(f"--input: {kind.description} must be the only input")
    return kind(options, inputs)
