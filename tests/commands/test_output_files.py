"""All options that write a file, each with targets that must not come to harm."""

from __future__ import annotations

import json
import os
import pty
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from command_line import COMMAND, rankslice, succeed
from namespaces import read_only, run_all_with_mounts, small_disk

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.commands.app import COMMANDS, load_command
from rankslice.framework.files.output_file import STDOUT, write_output

LOADED = {name: load_command(name) for name in COMMANDS}

READ = {
    *(
        "model",
        "mapping",
        "horizontal",
        "surge",
        "platform",
        "profile",
        "arrivals",
        "target",
        "folder",
        "targets",
        "tls_cert",
        "tls_key",
        "token_file",
        "labels",
        "against",
        "truth",
        "input",
    ),
    *("mpirun", "ssh_config", "representative", "check", "hosts", "wheels", "build"),
}
"""Parameters that name files or folders to read."""

FOLDERS = {
    *(("build", "out"), ("explore", "out"), ("demo", "folder")),
    *(("run", "boxes_to"), ("run", "record")),
}
"""Options that name a folder to make."""


def options() -> list[tuple[str, str]]:
    """Return all options that name a file to write: the command, and the option."""
    return [
        (name, option.flag)
        for name, command in LOADED.items()
        for option in command.options
        if "writes" in option.about
    ]


ARGUMENTS = {
    "inspect": ["MODEL"],
    "build": ["MODEL", "--cuts", "2", "--share-cores", "--out", "NEW"],
    "run": ["OUT", "--frames", "3"],
    "report": ["OUT"],
    "replay": ["OUT", "--rank", "0"],
    "trace": ["OUT", "--frames", "3"],
    "deploy": ["OUT"],
    "profile": ["MODEL", "--seconds", "1", "--no-refine"],
    "probe": ["local"],
    "simulate": ["OUT"],
    "bench": ["OUT", "--starts", "1", "--frames", "50", "--load-levels", "none"],
    "explore": ["MODEL", "--out", "NEW"],
    "demo": [],
}
"""Of each command: what it takes to run."""

QUICK = [
    *(("inspect", "--json"), ("inspect", "--svg"), ("build", "--json"), ("run", "--json")),
    *(("run", "--results"), ("probe", "--out"), ("probe", "--json"), ("profile", "--json")),
]
"""Options of those commands that do their work within a second or two."""

IN_TIERS = [
    pytest.param(*case, marks=[] if case[0] in ("inspect", "build") else pytest.mark.ci)
    for case in QUICK
]


@pytest.fixture
def line(built: Path, tmp_path: Path) -> Callable[[str, str, Path | str], list[str]]:
    """Return what makes a command's arguments with an option and its file."""
    values = {"MODEL": str(built.parent / "model.onnx"), "OUT": str(built)}
    values["NEW"] = str(tmp_path / "new")

    def make(command: str, option: str, file: Path | str) -> list[str]:
        rest = ["--profile", str(tmp_path / "p.json")] if command == "explore" else []
        if command == "profile" and option != "--out":
            rest = ["--out", str(tmp_path / "profile.json")]
        if command == "probe" and option != "--out":
            rest = ["--out", str(tmp_path / "platform.yaml")]
        if command == "report" and option != "--html":
            rest = ["--html", str(tmp_path / "report.html")]
        arguments = [values.get(word, word) for word in ARGUMENTS[command]]
        if (command, option) == ("bench", "--csv"):
            arguments, rest = arguments[:-2], ["--frequency", "1.2G"]
        elif option == "--csv":
            rest = ["--operators"]
        return [command, *arguments, *rest, option, str(file)]

    return make


def test_each_option_with_a_path_is_known_as_one_that_reads_or_writes() -> None:
    written = {(name, option.lstrip("-")) for name, option in options()}
    unknown = [
        (command, option.name)
        for command, loaded in LOADED.items()
        for option in loaded.options
        if (option.about["kind"] is Path or Path in get_args(option.kind))
        if option.name not in READ and (command, option.name) not in {*written, *FOLDERS}
    ]
    assert [] == unknown
    assert 13 <= len(options())


def device(path: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("making a device takes root (CAP_MKNOD)")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))  # as /dev/full is
    return "is a device"


def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "is a pipe"


def unix_socket(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return "is a socket"


def link_to_a_file(path: Path) -> str:
    path.with_name("target").write_text("{}")
    path.symlink_to("target")
    return "is a link, which is not followed"


def dangling_link(path: Path) -> str:
    path.symlink_to("nothing")
    return "is a link, which is not followed"


def link_to_a_folder(path: Path) -> str:
    path.with_name("other").mkdir()
    path.symlink_to("other")
    return "is a link, which is not followed"


def folder(path: Path) -> str:
    path.mkdir()
    return "is a folder, not a file"


def notes(path: Path) -> str:
    path.write_text("my notes")
    return "already exists and is not a"


def nowhere(path: Path) -> str:
    path.parent.rmdir()
    return "no such folder; make it first"


TARGETS = [
    *(device, pipe, unix_socket, link_to_a_file, dangling_link, link_to_a_folder),
    *(folder, notes, nowhere),
]


def entries(folder: Path) -> dict[str, Any]:
    """Return what is in a folder: modes, numbers of files, contents and where links lead."""
    return {
        path.name: (
            *(path.lstat().st_mode, path.lstat().st_ino, path.lstat().st_rdev),
            path.readlink() if path.is_symlink() else None,
            path.read_bytes() if path.is_file() and not path.is_symlink() else None,
        )
        for path in (folder.iterdir() if folder.exists() else ())
    }


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
@pytest.mark.parametrize(("command", "option"), options())
def test_what_is_no_file_of_the_same_kind_is_refused_before_the_work_and_stays(
    command: str, option: str, target: Callable[[Path], str], line: Any, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path = place / "results.bin"
    problem = target(path)
    before = entries(place)
    ended = rankslice(*line(command, option, path))
    assert (1, "") == (ended.code, ended.out)
    where = place if target is nowhere else path
    assert ended.err.startswith(f"error: {where}: {problem}"), ended.err
    assert 1 == ended.err.count("\n")
    assert before == entries(place)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("target", [device, pipe, unix_socket, dangling_link, notes])
@pytest.mark.parametrize(("command", "option"), sorted(FOLDERS))
def test_what_is_no_folder_is_refused_and_stays(
    command: str, option: str, target: Callable[[Path], str], line: Any, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    target(place / "out")
    before = entries(place)
    beside = {"folder": [], "boxes_to": ["--boxes", "y"], "record": []}
    others = beside.get(option, ["--force"])
    ended = rankslice(*line(command, f"--{option.replace('_', '-')}", place / "out"), *others)
    assert 1 == ended.code
    assert ended.err.startswith(f"error: {place / 'out'}: is "), ended.err
    assert before == entries(place)


@pytest.mark.parametrize(("command", "name"), [("build", "plan.json"), ("explore", "front.json")])
def test_a_folder_whose_record_is_a_pipe_is_nothing_to_replace(
    command: str, name: str, line: Any, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    os.mkfifo(old / name)
    ended = rankslice(*line(command, "--out", old), "--force")
    assert (1, f"error: {old}: has no {name}") == (ended.code, ended.err.partition(";")[0])
    assert [name] == list(entries(old))


@pytest.mark.parametrize("target", [device, pipe, link_to_a_file, folder, notes])
def test_force_reaches_platform_files_only(target: Callable[[Path], str], tmp_path: Path) -> None:
    problem = target(tmp_path / "platform.yaml")
    before = entries(tmp_path)
    ended = rankslice("probe", "local", "--out", tmp_path / "platform.yaml", "--force")
    assert ended.err.startswith(f"error: {tmp_path / 'platform.yaml'}: {problem}")
    assert before == entries(tmp_path)


@pytest.mark.parametrize(("command", "option"), IN_TIERS)
def test_a_file_of_the_same_kind_is_replaced_and_keeps_its_permissions(
    command: str, option: str, line: Any, tmp_path: Path
) -> None:
    path = tmp_path / "old.bin"
    if option == "--results":
        ResultsWriter(path, "f", [Tensor("old", "float32", ())]).close()
    else:
        old = {"--svg": "<svg>old", "--out": "# old\n\n---\nboards: {old: {}}\n"}
        path.write_text(old.get(option, '{"old": 1}'))
    path.chmod(0o640)
    force = ["--force"] if (command, option) == ("probe", "--out") else []
    ended = rankslice(*line(command, option, path), *force)
    assert (0, "") == (ended.code, ended.err.replace("\n", "") if ended.code else "")
    assert b"old" not in path.read_bytes()[:200]
    assert 0o640 == stat.S_IMODE(path.stat().st_mode)
    assert [] == [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "beginning",
    [
        '{"local_cpu0": ["a..b"]}',
        '{\n "edge01_gpu" : "a"}',
        '{\n"format": "rankslice-profile"}',
        '{"format": "rankslice-plan"}',
    ],
)
def test_a_result_replaces_no_json_of_the_users(beginning: str, line: Any, tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text(beginning)
    ended = rankslice(*line("inspect", "--json", path))
    assert ended.err.startswith(f"error: {path}: already exists and is not a JSON result")
    assert beginning == path.read_text()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("inspect", "--svg"),
        ("build", "--json"),
        pytest.param("run", "--results", marks=pytest.mark.ci),
        pytest.param("probe", "--out", marks=pytest.mark.ci),
    ],
)
def test_dev_null_takes_everything_and_stays_what_it_is(
    command: str, option: str, line: Any, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a device takes root (CAP_MKNOD)")
    null = tmp_path / "null"  # as root, so that a failure costs no real one
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    before = entries(tmp_path)
    succeed(*line(command, option, null))
    assert before["null"] == entries(tmp_path)["null"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_standard_output_has_the_file_alone(option: str, name: str, line: Any) -> None:
    ended = succeed(*line("inspect", option, name))
    if option == "--json":
        assert "rankslice-inspection" == json.loads(ended.out)["format"]
    else:
        assert ended.out.startswith("<svg")
        assert ended.out.endswith("</svg>\n")


def test_no_file_steers_the_terminal_that_is_standard_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    pieces = ["frame,label\n", "0,\x1b]0;owned\x07\x9b31m\u202e\n"]
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", 0) as screen:
        monkeypatch.setattr(sys, "stdout", terminal)
        write_output(STDOUT, iter(pieces), "--classes")
        terminal.flush()
        read = b""
        while read.count(b"\n") < len(pieces):
            read += screen.read(1000)
        shown = read.decode()
    assert shown.replace("\r\n", "").isprintable()
    assert "owned" in shown


@pytest.mark.ci
def test_results_go_to_standard_output(built: Path, tmp_path: Path) -> None:
    with (tmp_path / "r").open("wb") as file:
        command = [*COMMAND, "run", built, "--frames", "3", "--results", "/dev/stdout"]
        subprocess.run(command, stdout=file, check=True, timeout=300)
    assert 3 == len(read_results(tmp_path / "r"))


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("inspect", ["--svg", "SAME", "--json", "SAME"]),
        ("inspect", ["--svg", "-", "--json", "/dev/stdout"]),
        ("inspect", ["--mapping", "SAME", "--json", "SAME"]),
        ("simulate", ["--profile", "SAME", "--json", "SAME"]),
        ("run", ["--results", "SAME", "--json", "SAME"]),
        ("run", ["--labels", "SAME", "--json", "SAME"]),
        ("profile", ["-o", "SAME", "--json", "SAME"]),
        ("probe", ["-o", "SAME", "--json", "SAME", "--force"]),
    ],
)
def test_no_file_is_named_twice(command: str, others: list[str], line: Any, tmp_path: Path) -> None:
    same = tmp_path / "same.bin"
    if not {"--mapping", "--profile", "--labels"}.isdisjoint(others):
        same.write_text("{}")
    words = [word.replace("SAME", str(same)) for word in others]
    ended = rankslice(command, *line(command, "--json", "x")[1:-2][:1], *words)
    assert 1 == ended.code
    assert "is named by" in ended.err
    assert not same.exists() or "{}" == same.read_text()


def test_a_model_is_never_replaced_by_what_is_said_of_it(built: Path) -> None:
    model = built.parent / "model.onnx"
    before = model.read_bytes()
    assert 1 == rankslice("inspect", model, "--json", model).code
    assert before == model.read_bytes()


def test_a_read_only_place_is_told_before_the_work(line: Any, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    lines = [line(command, option, place / "r.bin") for command, option in options()]
    for words, ended in zip(lines, run_all_with_mounts(read_only(place), lines), strict=True):
        assert (1, "") == (ended.code, ended.out), words
        problem = "cannot be written: Read-only file system"
        assert ended.err.startswith(f"error: {place / 'r.bin'}: {problem}"), words
    assert not (tmp_path / "new").exists()


@pytest.mark.ci
def test_a_full_disk_is_told_and_older_files_stay(line: Any, tmp_path: Path) -> None:
    place, after = tmp_path / "place", tmp_path / "after"
    place.mkdir()
    mounts, lines = small_disk(place), []
    for number, (command, option) in enumerate(QUICK):
        olds = {"--svg": "<svg>old", "--results": "rankslice results 1 old", "--out": "boards:"}
        old = olds.get(option, "{}")
        file = place / f"{number}.bin"
        mounts.append(f"printf '%s' '{old}' > {file}")
        force = ["--force"] if (command, option) == ("probe", "--out") else []
        lines.append([*line(command, option, file), *force])
    mounts += [
        f"dd if=/dev/zero of={place}/filled bs=4k 2>/dev/null || :",
        f"cp -a {place} {after}",
    ]
    same = [f"diff -r {place} {after} >&2"]
    for words, ended in zip(lines, run_all_with_mounts(mounts, lines, same), strict=True):
        assert 1 == ended.code, words
        assert "No space left on device" in ended.err, words
        assert "Traceback" not in ended.err


@pytest.mark.ci
def test_an_npz_of_results_is_read_by_numpy(built: Path, tmp_path: Path) -> None:
    succeed("run", built, "--frames", "7", "--results", tmp_path / "r.npz", "--verify", "exact")
    with np.load(tmp_path / "r.npz") as archive:
        assert ["y"] == archive.files
        assert ((7, 1, 4, 4, 4), np.float32) == (archive["y"].shape, archive["y"].dtype)
        assert np.isfinite(archive["y"]).all()
    assert ["r.npz"] == [path.name for path in tmp_path.iterdir()]
    refused = rankslice("run", built, "--results", tmp_path / "r.npz", "--dry-run")
    assert 1 == refused.code
    assert "can be written only by 'rankslice run'" in refused.err


def test_a_name_that_tells_no_format_of_results_is_refused(built: Path, tmp_path: Path) -> None:
    ended = rankslice("run", built, "--results", tmp_path / "r.npy")
    assert 1 == ended.code
    assert "does not name a format of results; expected a name that ends in .npz" in ended.err


def redirected(built: Path, words: str, redirection: str) -> tuple[int, str]:
    """Return exit code and errors of ``inspect`` in a shell that redirects its output."""
    command = shlex.join([*COMMAND, "inspect", str(built.parent / "model.onnx"), *words.split()])
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} {redirection}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.ci
@pytest.mark.parametrize("words", ["", "--json -", "--svg /dev/stdout"])
def test_standard_output_that_takes_nothing_is_told(words: str, built: Path) -> None:
    expected = "error: standard output: cannot be written: No space left on device\n"
    assert (1, expected) == redirected(built, words, "> /dev/full")


@pytest.mark.ci
def test_a_reader_that_has_seen_enough_is_no_mistake(built: Path) -> None:
    assert (1, "") == redirected(built, "--json -", "| true")


@pytest.mark.ci
def test_a_closed_standard_output_is_told_where_it_is_wanted(built: Path) -> None:
    expected = "error: standard output: is closed; choose another --json\n"
    assert (1, expected) == redirected(built, "--json -", ">&-")
    assert (0, "") == redirected(built, "", ">&-")
