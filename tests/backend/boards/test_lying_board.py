"""A board that lies, in every field of every answer: nothing it says does anything here.

Its ``ssh`` is a program of the tests, found first in ``PATH``, so all else is as with boards: no
root, and no other machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import rankslice, succeed
from lies import HOSTILE, WHOLE, as_text, paths_in, with_lie
from needed import NEEDS_RSYNC
from probed_boards import RUBIK_PI, environment, report_of
from real_jobs import chain_folder

from rankslice.backend.boards.accelerator import Accelerator, SubModel, Timings
from rankslice.backend.boards.answers import (
    BoardCheck,
    ClockReport,
    CoRunnerReport,
    Done,
    Fetched,
    Received,
    Room,
    WatchReport,
    answer_in,
)
from rankslice.backend.boards.board_packages import Package, deploy_packages
from rankslice.backend.boards.conversation import (
    BoardLinks,
    Conversation,
    address_towards,
    clock_ahead_s,
    load_complaints,
    report_of as asked_report,
)
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.preflight import CheckedBoards, check_boards, copy_inputs
from rankslice.backend.boards.probed import (
    BoardReport,
    Cluster,
    Interface,
    OpenMpi,
    PowerSensor,
    Probed,
    ProbedBoard,
)
from rankslice.backend.boards.ssh import BoardShell
from rankslice.backend.boards.watches import Watches
from rankslice.backend.launch.mpirun import MpiRun
from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.backend.runtime.job import Rank
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.untrusted_json import UntrustedJsonError
from rankslice.framework.specs.platform_yaml import parse_platform_yaml
from rankslice.session.across_boards import run_across
from rankslice.session.callbacks import NO_CALLBACKS
from rankslice.session.pipeline import prepare_fed_job
from rankslice.session.probing.platform_file import platform_text
from rankslice.views.terminal import new_console

pytestmark = NEEDS_RSYNC

SSH = """#!/bin/sh
while :; do
    case "$1" in
        -F | -l) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
shift
case "$*" in "rsync --server"*) cd "$BOARD" && exec sh -c "$*" ;; esac
. "$LIE"
exec 3>&1
exec sed -nE '/^(end|failed|succeeded)$/q' > /dev/null
"""
DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"
MARK = "rankslice-answer "
MPIRUN = MpiRun(Path("/usr/bin/mpirun"), (5, 0, 8))
SHA = "ab" * 32
NETWORK = "10.0.0.0/24"

ENDLESS = ["exec yes", "exec yes >&2", f"exec yes '{MARK}'", f"printf '{MARK}'; exec cat /dev/zero"]


@dataclass
class Liar:
    """A board that says what it is told to."""

    folder: Path
    shell: BoardShell = field(
        default_factory=lambda: BoardShell(Login("edge01", "liar.invalid", "pi"))
    )

    def says(self, *answers: str) -> None:
        lines = "".join(f"{MARK}{answer}\n" for answer in answers)
        (self.folder / "answers").write_text(lines, errors="surrogatepass")
        self.does(f"cat {shlex.quote(str(self.folder / 'answers'))}")

    def does(self, script: str) -> None:
        (self.folder / "lie").write_text(script + "\n")


@pytest.fixture
def liar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Liar:
    programs, board, here = (tmp_path / name for name in ("bin", "board", "here"))
    for path in (programs, board, here):
        path.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    for name, value in {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "BOARD": str(board),
        "HOME": str(here),
        "LIE": str(tmp_path / "lie"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(here)
    return Liar(tmp_path)


def package(folder: Path) -> Package:
    """Return a package without anything that a board would need."""
    folder.mkdir(exist_ok=True)
    for name in ("manifest.json", "requirements.txt", "driver.py"):
        (folder / name).write_text("")
    return Package("edge01", folder, SHA, {"driver.py": {"sha256": SHA, "bytes": 0}})


def checked(shell: BoardShell) -> CheckedBoards:
    check = BoardCheck((), NETWORK, shell.login.board, ())
    return CheckedBoards(((shell, check),), f"{'0' * 12}-{'0' * 16}", None)


# What boards are asked, and what an honest one answers


def deploy(liar: Liar) -> None:
    deploy_packages([(liar.shell, package(liar.folder / "package"))])


def ask_for(kind: type) -> Callable[[Liar], None]:
    return lambda liar: liar.shell.ask(kind, "asked") and None


def look(liar: Liar) -> None:
    boards = check_boards(
        [(liar.shell, package(liar.folder / "package"))], None, MPIRUN, liar.folder
    )
    words = [*boards.mpirun_options(MPIRUN), *boards.program[:2], boards.program[-1]]
    harmless = re.compile(r"(\$HOME/)?[A-Za-z0-9_~/.,=: -]+")
    assert all(harmless.fullmatch(word) for word in words), words
    (liar.folder / "frames.npz").write_text("")
    (liar.folder / "board" / ".rankslice" / "runs" / boards.run).mkdir(parents=True)
    copy_inputs(boards, "edge01", [str(liar.folder / "frames.npz")])


def watch(liar: Liar) -> None:
    watches = Watches(checked(liar.shell))
    with watches:
        pass
    assert all(line.isprintable() for line in watches.lines)


def report(liar: Liar) -> None:
    talk = Conversation(liar.shell)
    try:
        report = asked_report(talk)
    finally:
        talk.close()
    board = ProbedBoard("edge01", "liar.invalid", "", "10.0.0.1", report)
    text = platform_text(Probed((board,), ()))
    assert text.replace("\n", "").isprintable()
    assert ["edge01"] == [board.name for board in parse_platform_yaml(text, "x").boards]


def talk(liar: Liar, do: Callable[[Conversation], object]) -> None:
    conversation = Conversation(liar.shell)
    try:
        do(conversation)
    finally:
        conversation.close()


def network(liar: Liar) -> None:
    def measure(conversation: Conversation) -> None:
        both = {"edge01": conversation, "edge02": conversation}
        reached = BoardLinks({"edge01": conversation}, dict.fromkeys(both, "10.0.0.1"))
        (complaint,) = reached.complaints([("edge01", "edge01")])
        route = reached.route("edge01", "edge01", 0.1) if not complaint else None
        assert (route.complaint if route else complaint).isprintable()

    talk(liar, measure)


def accelerator(liar: Liar) -> None:
    rank = Rank(0, "edge01_cpu0", "edge01", "liar.invalid", "cpu0", (0,), "onnxruntime", ())
    with Accelerator(liar.shell, package(liar.folder / "package"), rank, ()) as opened:
        opened.greet()
        model = SubModel({"x.onnx": [b""]}, (), ())
        opened.measure(model, Timings())
        opened.compute(model)
        opened.rest()


def fetch(liar: Liar) -> None:
    liar.shell.get("run", "results.bin", liar.folder / "here" / "fetched", max_bytes=1000)


def full_report(folder: Path) -> dict[str, Any]:
    """Return a report that has something of everything."""
    software = environment(onnxruntime="1.20.0", litert="2")
    software = dataclasses.replace(software, providers=("CPUExecutionProvider",), library="x")
    more = {
        "interfaces": (Interface("eth0", "10.0.0.1", 24, 1000, "wired"),),
        "open_mpi": (OpenMpi("/usr/bin/mpirun", "5.0.8", has_daemon=True),),
        "sensors": (PowerSensor("/sys/x", "ina", 5, may_read=True),),
        "clusters": (Cluster((0,), "Cortex-A55", 300, 1900, 300, "/sys/y"),),
        "drivers": ("/usr/share/vulkan/icd.d/x.json",),
        "environments": (software,),
    }
    report = report_of(folder, RUBIK_PI, software, **more)
    short = {
        name: value[:1] if isinstance(value, tuple) else value
        for name in (field.name for field in dataclasses.fields(BoardReport))
        for value in [getattr(report, name)]
    }
    plain = asdict(dataclasses.replace(report, **short))
    plain["environments"][0]["packages"] = dict(software.packages)
    return plain


GREETING = {
    "engine_version": "1",
    "rank_bytes": 1,
    "core_kinds": ["ARM, 446"],
    "board": {
        "name": "edge01",
        "sensor": "ina",
        "idle_mw": 1,
        "host": "edge01",
        "machine": "aarch64",
        "processor": "A",
        "python": "3.12",
        "memory_bytes": 1,
        "cores": [{"number": 0, "governor": "performance", "most_khz": 1}],
    },
}
MEASURED = {"samples_ns": [1], "memory_bytes": 1, "gpu_bytes": 1, "energy_uj": 1}
SAMPLE = Sample(1, {"temperature_c.cpu": 50.5}, ("power",))
HEARD = [
    *(asdict(WatchReport(state, "x", 1, True)) for state in ("watching", "alive", "message")),
    asdict(WatchReport("sample", "", 0, False, SAMPLE)),
    asdict(WatchReport("ended", "x", 1, True)),
    asdict(ClockReport(1, 1)),
]
BASES = ("packages/0123456789ab", "staging/0123456789ab.01234567")
INTERFACE = asdict(Interface("eth0", "10.0.0.1", 24, 1000, "wired"))
NO_BOARD = BoardReport.__dataclass_fields__

ASKED: dict[str, tuple[Callable[[Liar], None], list[dict[str, Any]]]] = {
    "receive": (deploy, [asdict(Received("there", ()))]),
    "receive bases": (ask_for(Received), [asdict(Received("wanted", BASES))]),
    "commit": (ask_for(Done), [{}]),
    "room": (ask_for(Room), [asdict(Room(1))]),
    "make_environment": (ask_for(Done), [{}]),
    "look": (look, [asdict(BoardCheck((), NETWORK, "edge01", ("0123456789ab-0123456789abcdef",)))]),
    "problems": (look, [asdict(BoardCheck(("is broken",), "", "edge01", ()))]),
    "watch": (watch, HEARD),
    "co_run": (ask_for(CoRunnerReport), [asdict(CoRunnerReport(1.5))]),
    "report": (report, [{}]),
    "addresses": (
        lambda liar: talk(liar, lambda t: address_towards(t, [])),
        [{"interfaces": [INTERFACE]}],
    ),
    "clock": (lambda liar: talk(liar, clock_ahead_s), [{"now_us": 1}] * 5),
    "load": (
        lambda liar: talk(liar, lambda t: load_complaints(t, [("x.so", {})])),
        [{"complaints": [""]}],
    ),
    "network": (
        network,
        [{"port": 5000}, {"complaints": [""]}, {"latency_us": 5, "bits_per_s": 10**9}],
    ),
    "measure": (accelerator, [GREETING, MEASURED, {}, {}]),
    "fetch": (fetch, [asdict(Fetched(0))]),
}


def honest(name: str, folder: Path) -> tuple[Callable[[Liar], None], list[dict[str, Any]]]:
    """Return who asks, and what an honest board answers."""
    do, answers = ASKED[name]
    return do, [full_report(folder / "tree")] if name == "report" else answers


def lies(answers: list[dict[str, Any]], *, every: bool) -> Iterator[list[str]]:
    """Yield answers with a lie each: every one in every field, or some in each."""
    rest = itertools.cycle(HOSTILE)
    texts = [as_text(answer) for answer in answers]
    for number, answer in enumerate(answers):
        for path in paths_in(answer):
            for lie in HOSTILE if every else itertools.islice(rest, 4):
                lied = as_text(with_lie(answer, path, lie))
                yield [*texts[:number], lied, *texts[number + 1 :]]
        for whole in (as_text({**answer, "extra": "$(touch owned)"}), *WHOLE):
            yield [*texts[:number], whole, *texts[number + 1 :]]


def printed(error: RankSliceError) -> str:
    """Return what a terminal gets of an error."""
    screen = io.StringIO()
    console = new_console(file=screen)
    for mistake in error.mistakes:
        console.print(str(mistake), markup=False, soft_wrap=True)
    return screen.getvalue()


def check(liar: Liar, do: Callable[[Liar], None]) -> None:
    """Ask the liar; what it says may be a mistake, and does nothing else."""
    text = ""
    try:
        do(liar)
    except RankSliceError as error:
        text = printed(error)
    assert text.replace("\n", "").isprintable()
    assert len(text) < 20_000


def walk(name: str, liar: Liar, *, every: bool) -> None:
    do, answers = honest(name, liar.folder)
    for lied in lies(answers, every=every):
        liar.says(*lied)
        check(liar, do)
    left = {str(path.relative_to(liar.folder)) for path in liar.folder.rglob("*owned*")}
    assert set() == left
    assert not Path("/tmp/rankslice-owned").exists()
    assert {"fetched"} >= {path.name for path in (liar.folder / "here").iterdir()}


@pytest.mark.parametrize("name", ASKED)
def test_an_honest_board_is_understood(name: str, liar: Liar) -> None:
    do, answers = honest(name, liar.folder)
    liar.says(*map(as_text, answers))
    if name == "problems":
        with pytest.raises(RankSliceError, match="is broken"):
            do(liar)
    else:
        do(liar)


@pytest.mark.parametrize("name", ASKED)
def test_lies_in_every_field_do_nothing(name: str, liar: Liar) -> None:
    walk(name, liar, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_every_lie_in_every_field_does_nothing(name: str, liar: Liar) -> None:
    walk(name, liar, every=True)


@pytest.mark.ci
@pytest.mark.parametrize("script", ENDLESS)
@pytest.mark.parametrize("name", ["look", "watch"])
def test_output_without_end_is_cut_off(name: str, script: str, liar: Liar) -> None:
    liar.does(script)
    before = set(threading.enumerate())  # other tests may have left some
    with pytest.raises(RankSliceError, match=r"MiB|not JSON|does not answer|cannot be started"):
        ASKED[name][0](liar)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("network", ["0.0.0.0/0", "128.0.0.0/1", "10.0.0.1/8", "::/0", "10.0.0.0"])
def test_a_network_that_would_open_all_interfaces_is_none(network: str, liar: Liar) -> None:
    liar.says(json.dumps(asdict(BoardCheck((), network, "edge01", ()))))
    with pytest.raises(RankSliceError, match="sends an invalid answer: network"):
        ASKED["look"][0](liar)


@pytest.mark.parametrize("address", ["other.example", "10.0.0.1 ", "::1", "10.0.0.256"])
def test_an_address_that_would_be_looked_up_elsewhere_is_none(address: str, liar: Liar) -> None:
    check = BoardCheck((), NETWORK, "edge01", (), address=address)
    liar.says(json.dumps(asdict(check)))
    with pytest.raises(RankSliceError, match="sends an invalid answer: address"):
        ASKED["look"][0](liar)


@pytest.mark.parametrize("error", ["[]", '["$(touch owned)"]', "1", "null", "{}"])
def test_a_refusal_is_a_text(error: str) -> None:
    with pytest.raises(UntrustedJsonError, match="its error is not a text"):
        answer_in(f'{MARK}{{"error": {error}}}'.encode())


@pytest.mark.ci
def test_a_watch_that_lies_while_the_job_runs_is_told_as_what_it_is(liar: Liar) -> None:
    liar.says(json.dumps(asdict(WatchReport("watching", "", 0, False))))
    answers, now = (shlex.quote(str(liar.folder / name)) for name in ("answers", "now"))
    liar.does(f"cat {answers}; until [ -e {now} ]; do sleep 0.02; done; echo '{MARK}[]'")
    watches = Watches(checked(liar.shell))
    with watches:
        (liar.folder / "now").touch()
        deadline = time.monotonic() + 10
        while threading.active_count() > 1 and time.monotonic() < deadline:
            time.sleep(0.02)
    ended = RankSliceError("mpirun ended with exit code 1")
    assert "sends an invalid answer: it is not an object" in str(watches.explained(ended))


@pytest.mark.parametrize(
    ("ranks", "daemon", "message"),
    [
        (1, False, "mpirun's daemon there has ended while ranks were running"),
        (0, True, "all ranks there have ended at once"),
        (0, False, "all processes of the job there have ended at once"),
    ],
)
def test_what_a_board_has_lost_first_explains_the_end(
    ranks: int, daemon: bool, message: str, liar: Liar
) -> None:
    reports = [
        WatchReport("watching", "", 0, False),
        WatchReport("alive", "", 1, True),
        WatchReport("alive", "", ranks, daemon),
    ]
    liar.says(*(json.dumps(asdict(report)) for report in reports))
    watches = Watches(checked(liar.shell))
    ended = RankSliceError("mpirun ended with exit code 1")
    with contextlib.suppress(RankSliceError), watches:
        raise ended
    assert f"board edge01 (liar.invalid): {message}" in str(watches.explained(ended))


READ_REQUEST = """
    read -r size
    asked=$(head -c "$size" | grep -ao '"action": "[a-z]*"')
"""


def waiting_for(file: str) -> str:
    return f"for turn in $(seq 500); do [ -e {file} ] && break; sleep 0.02; done"


def run_across_liar(liar: Liar, **options: Any) -> None:
    """Run a job whose mpirun says at once that it has ended well."""
    boards = checked(BoardShell(Login("local", "liar.invalid")))
    out = chain_folder(liar.folder, 1)
    prepared = prepare_fed_job(out, RunOptions(inputs=()), check_memory=False)
    options = {"options": dataclasses.replace(prepared.options, **options)}
    prepared = dataclasses.replace(prepared, launch=("true",), boards=boards, **options)
    run_across(prepared, boards, liar.folder, NO_CALLBACKS, {})


def test_inputs_are_copied_before_boards_are_watched(liar: Liar) -> None:
    """A copy may take long, and a watch does not wait long for a silent launcher."""
    liar.does("touch watched")
    times = liar.folder / "times.txt"
    times.write_text("0\n")
    with pytest.raises(RankSliceError, match="rsync failed"):  # there is no folder of the run
        run_across_liar(liar, arrivals=times)
    assert not Path("watched").exists()


def run_to_its_end(liar: Liar, watch: str, fetch: str) -> Path:
    """Run a job on a board that says so; return its report."""
    reports = [WatchReport("watching", "", 0, False), WatchReport("alive", "", 1, True)]
    said = "".join(f"echo '{MARK}{json.dumps(asdict(report))}';" for report in reports)
    cases = f'case "$asked" in *watch*) {said} {watch} ;; *fetch*) touch asked; {fetch} ;; esac'
    liar.does(READ_REQUEST + cases)
    run_across_liar(liar)
    return liar.folder / "report.json"


@pytest.mark.ci
def test_boards_are_asked_for_signs_of_life_until_the_report_is_here(liar: Liar) -> None:
    watch = f"{waiting_for('asked')}; for number in $(seq 12); do read -r line; done; touch heard"
    fetch = f"{waiting_for('heard')}; [ -e heard ] && printf '{MARK}{{\"nbytes\": 2}}\\n{{}}'"
    assert "{}" == run_to_its_end(liar, watch, fetch).read_text()


def test_a_daemon_whose_end_mpirun_took_for_that_of_the_job_explains_the_missing_report(
    liar: Liar,
) -> None:
    lost = json.dumps(asdict(WatchReport("alive", "", 1, False)))
    watch = f"{waiting_for('asked')}; echo '{MARK}{lost}'; touch told"
    missing = json.dumps({"error": "report.json: No such file or directory"})
    fetch = f"{waiting_for('told')}; echo '{MARK}{missing}'"
    with pytest.raises(RankSliceError, match="mpirun's daemon there has ended while ranks were"):
        run_to_its_end(liar, watch, fetch)


CRASH = "rankslice: rank {} ({}_cpu0 on x): the process was killed or crashed, last at start"
FORGED_END = "  Remote daemon: [prterun-1@0,1] on node liar.invalid"


@pytest.mark.parametrize(
    ("said", "printed", "message", "sender"),
    [
        ([CRASH.format(1, "edge01")], [], CRASH.format(1, "edge01"), "edge01"),
        ([CRASH.format(1, "edge01")], [CRASH.format(0, "b")], CRASH.format(1, "edge01"), "edge01"),
        ([CRASH.format(0, "b")], [], CRASH.format(0, "b"), "edge01"),
        ([], [CRASH.format(0, "b")], CRASH.format(0, "b"), ""),
        ([], [FORGED_END], "mpirun ended with exit code 1", None),
    ],
)
def test_a_message_is_known_by_the_watch_that_brought_it(
    said: list[str], printed: list[str], message: str, sender: str | None, liar: Liar
) -> None:
    """What mpirun prints may be of any board: the first message is one that a watch brought."""
    reports = [WatchReport("watching", "", 0, False)]
    reports += [WatchReport("message", text, 1, True) for text in said]
    liar.says(
        *(json.dumps(asdict(report)) for report in [*reports, WatchReport("alive", "", 1, True)])
    )
    watches = Watches(checked(liar.shell))
    watches.lines += printed
    ended = RankSliceError("mpirun ended with exit code 1")
    with contextlib.suppress(RankSliceError), watches:
        raise ended
    for watch in watches._watches:  # all that the liar wrote is read, and its end is no loss
        watch.loss, watches._lost = None, []
    (mistake,) = watches.explained(ended).mistakes
    assert message.removeprefix("rankslice: ") == str(mistake)
    assert sender == getattr(mistake, "sender", None)


@pytest.mark.parametrize("command", ["deploy", "run", "probe", "check"])
def test_a_command_that_hears_lies_ends_with_a_message(command: str, liar: Liar) -> None:
    here = liar.folder / "out"
    boards, mapping = liar.folder / "boards.yaml", liar.folder / "mapping.json"
    boards.write_text("boards: {edge01: {host: liar.invalid, user: pi, cores: 1}}")
    mapping.write_text('{"edge01_cpu0": ["conv1..softmax"]}')
    succeed("build", DIGITS, "--mapping", mapping, "--platform", boards, "--out", here)
    steering = '{"error": "\\u001b]0;owned\\u0007 $(touch owned)"}'
    words = {
        "deploy": ("deploy", here),
        "run": ("run", here),
        "probe": ("probe", "pi@liar.invalid", "--out", liar.folder / "new.yaml"),
        "check": ("probe", "--check", boards, here),
    }[command]
    for said in (steering, '{"run": "/x/$(touch owned)", "problems": []}', "[]", "[" * 100_000):
        liar.says(said)
        ended = rankslice(*words)
        assert 1 == ended.code
        assert (ended.out + ended.err).replace("\n", "").isprintable()
        assert "liar.invalid" in ended.err or "edge01" in ended.out
    assert [] == list(liar.folder.rglob("owned"))
    assert not (liar.folder / "new.yaml").exists()


def test_a_file_that_is_not_there_is_a_mistake_on_this_machine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = BoardShell(Login("here", "localhost"))
    with pytest.raises(RankSliceError, match=r"board here .*No such file or directory"):
        own.get("0-0", "results.bin", tmp_path / "fetched", max_bytes=1)
