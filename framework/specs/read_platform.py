"""Platform files: YAML, AutoDiCE's text, or this machine, to the record."""

from __future__ import annotations

import os
import platform as machine
import re
from collections import Counter
from pathlib import Path
from typing import TypeAlias

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.framework.specs.core_lists import count_or_list
from rankslice.framework.specs.platform_names import check_name
from rankslice.framework.wording import bare, joined, quoted

_MAX_BYTES = 1 << 18
"""Largest platform file: a thousand boards have less, and reading YAML is slow."""

PlatformSource: TypeAlias = str | Path | Platform
"""A file, the word ``local``, or a platform that was read already."""


def read_platform(name: PlatformSource) -> Platform:
    """Return the platform that a file describes.

    Args:
        name: A YAML file, a ``.txt`` file in AutoDiCE's form, or the word ``local`` for this
            machine; a platform is returned as it is.
    """
    if isinstance(name, Platform):
        return name
    if str(name) == "local":
        return local_platform()
    path = Path(name)
    text = read_text(path, "a platform", _MAX_BYTES)
    if path.suffix.lower() == ".txt":
        return parse_platform_text(text, path.name)
    from rankslice.framework.specs.platform_yaml import parse_platform_yaml  # takes its time

    return parse_platform_yaml(text, path.name)


def local_platform() -> Platform:
    """Return this machine as the board ``local``, with the cores this process may use."""
    bytes_of_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    board = Board(
        name="local",
        host="localhost",
        arch=machine.machine(),
        python=".".join(machine.python_version_tuple()[:2]),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_mb=round(bytes_of_memory / 2**20),
    )
    return Platform("local", (board,))


_FORM = "expected a line such as `edge01 arm slots=0-5 NVIDIAVolta CUDA`"
_SLOTS = re.compile(r"\bslots?\s*=\s*(?P<cores>[^\s;()A-Za-z]*)")
_GPU_PREFIX = re.compile(r"gpu[=:]?", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,;()]+")
_CUDA = Accelerator("onnxruntime", (("provider", "CUDAExecutionProvider"),))
_OTHER_GPU = Accelerator("")


def parse_platform_text(text: str, name: str) -> Platform:
    """Return the platform that a text in one of AutoDiCE's forms describes.

    Three forms are about, and all are read; separators are spaces, tabs, commas and semicolons:

    * a name: ``nx01``;
    * a name and an address: ``nx01:192.168.178.45``;
    * a name, architecture, cores and GPU: ``nx01, arm, slots=0-5, gpu=NVIDIAVolta (CUDA)``, as in
      Figure 2 of the paper (https://arxiv.org/abs/2207.12113), where ``gpu=`` may be missing.

    Boards without cores have unknown ones. The cores of ``slots=4`` are 0 to 3. A GPU with
    CUDA is driven by onnxruntime, any other by the engine of the model's format.
    """
    boards: list[Board] = []
    mistakes: list[Mistake | str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip(" \t,;")
        if content:
            try:
                boards.append(_board(content))
            except ValueError as error:
                mistakes.append(Mistake(f"{name}: line {number}", str(error), _FORM))
    times = Counter(board.name for board in boards)
    for board in (board for board, count in times.items() if count > 1):
        found = f"board {bare(board)} appears {times[board]} times"
        mistakes.append(Mistake(name, found, "expected every board once"))
    if not boards and not mistakes:
        raise RankSliceError(Mistake(name, "the file names no boards", _FORM))
    raise_mistakes(mistakes)
    return Platform(name, tuple(boards))


def _board(line: str) -> Board:
    slots = _SLOTS.search(line)
    rest = line if slots is None else f"{line[: slots.start()]} {line[slots.end() :]}"
    first, *words = _SEPARATORS.sub(" ", rest).split() or [""]
    if slots is not None and not slots["cores"]:
        raise ValueError(f"no cores after {quoted(slots[0])}")
    name, _, address = first.partition(":")
    arch = words.pop(0) if words and not words[0].lower().startswith("gpu") else ""
    return Board(
        name=check_name("board", name),
        host=check_name("host", address or name),
        arch=arch,
        cores=None if slots is None else count_or_list(slots["cores"].rstrip(",")),
        gpus=_gpus(words),
    )


def _gpus(words: list[str]) -> tuple[Accelerator, ...]:
    if not words:
        return ()
    named = [_GPU_PREFIX.sub("", words[0]), *words[1:]]
    arch, library, *more = [*(word for word in named if word), "", ""]
    if any(more):
        texts = joined([quoted(word) for word in words])
        raise ValueError(f"{texts} are too many words for a GPU and its library")
    cuda = "cuda" in library.lower() or (not library and arch.lower().startswith("nvidia"))
    return (_CUDA if cuda else _OTHER_GPU,)
