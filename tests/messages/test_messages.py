"""Every mistake has its message: all of them stand side by side in ``tests/golden/messages.txt``.

``pytest tests/messages --regenerate-golden`` writes that file anew: read what has changed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from command_line import Ended, rankslice
from jobs import figure_2
from provoked import MAPPING, PLATFORM, Content, Provoked, mistakes

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.txt"
CATALOGUE = {
    f"{section}: {case.title}": case for section, cases in mistakes().items() for case in cases
}
MAX_SHOWN = 30
MAX_LENGTH = 300
"""Characters of a line: what is longer is told by its length."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with good files, where the test works."""
    onnx.save(figure_2(), tmp_path / "model.onnx")
    (tmp_path / "mapping.json").write_text(MAPPING)
    (tmp_path / "platform.yaml").write_text(PLATFORM)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("precious")
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture(scope="module")
def golden(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The golden texts by case; those that tests put in are written at the end."""
    if not request.config.getoption("--regenerate-golden"):
        yield sections(GOLDEN.read_text(encoding="utf-8"))
        return
    texts: dict[str, str] = {}
    yield texts
    GOLDEN.write_text(document(texts), encoding="utf-8")


def document(texts: dict[str, str]) -> str:
    """Return the texts under the headings of their sections."""
    parts = ["What RankSlice says of mistakes: made by pytest tests/messages --regenerate-golden"]
    section = ""
    for name in CATALOGUE:
        if name in texts:
            heading, _, title = name.partition(": ")
            if heading != section:
                parts.append(f"{heading}\n{'=' * len(heading)}")
            section = heading
            parts.append(f"{title}\n{texts[name].rstrip()}")
    return "\n\n".join(parts) + "\n"


def sections(text: str) -> dict[str, str]:
    """Return the texts of a document by section and title."""
    texts: dict[str, str] = {}
    section = ""
    for part in text.split("\n\n")[1:]:
        title, _, body = part.rstrip("\n").partition("\n")
        if body == "=" * len(title):
            section = title
        else:
            texts[f"{section}: {title}"] = body
    return texts


def put(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if path.name in ("mpich", "silent"):
            path.chmod(0o755)


def listing(folder: Path) -> dict[str, str]:
    """Return what lies in a folder: kind and content by path."""
    files = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = path.readlink() if stat.S_ISLNK(mode) else ""
        if stat.S_ISREG(mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        files[str(path.relative_to(folder))] = f"{stat.S_IFMT(mode)} {content}"
    return files


def shown(case: Provoked, ended: Ended, here: Path) -> str:
    """Return a case as the golden file has it: files, command, exit code, message."""
    lines = [
        f"  {shortened(escaped(name))}: {shortened(escaped(content))}"
        for name, content in case.files.items()
        if isinstance(content, str)
    ]
    lines.append(f"  $ rankslice {shortened(case.command)}")
    lines.append(f"  exit code {ended.code}")
    message = ended.err.replace(str(here), "HERE")
    shown_lines = message.splitlines()
    if len(shown_lines) > MAX_SHOWN:
        shown_lines[3:-3] = [f"... ({len(shown_lines) - 6} more lines)"]
    lines += [f"  | {line}" for line in shown_lines]
    return "\n".join(lines)


def escaped(text: str) -> str:
    return ascii(text)[1:-1]


def shortened(text: str) -> str:
    if len(text) <= MAX_LENGTH:
        return text
    return f"{text[:100]}... ({len(text)} characters)"


def arguments(command: str) -> list[str]:
    """Return the words of a command; ``$'...'`` has escapes as in bash."""
    words = []
    for word in shlex.split(command.replace("$'", "'$")):
        words.append(word[1:].encode().decode("unicode_escape") if word.startswith("$") else word)
    return words


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_mistake_gives_its_message_and_leaves_everything_as_it_was(
    name: str, here: Path, built: Path, golden: dict[str, str], request: pytest.FixtureRequest
) -> None:
    case = CATALOGUE[name]
    if "out" in case.command.split():
        shutil.copytree(built, here / "out", symlinks=True)
    for file, content in case.files.items():
        put(here / file, content)
    before = listing(here)
    ended = rankslice(*arguments(case.command))
    text = shown(case, ended, here)
    if request.config.getoption("--regenerate-golden"):
        golden[name] = text
    assert golden[name] == text
    assert ended.code in (1, 2)
    assert "Traceback" not in ended.err
    assert before == listing(here)


def test_every_case_has_a_title_of_its_own() -> None:
    assert len(CATALOGUE) == sum(map(len, mistakes().values()))


def test_every_message_in_the_file_belongs_to_a_case(golden: dict[str, str]) -> None:
    assert list(CATALOGUE) == list(golden)


def test_no_line_of_a_message_is_endless(golden: dict[str, str]) -> None:
    assert 600 > max(len(line) for text in golden.values() for line in text.splitlines())
