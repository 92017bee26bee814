"""Programs that feed real jobs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from command_line import rankslice as command
from numpy.typing import NDArray
from real_jobs import digits_folder
from waiting import until

import rankslice
from rankslice.backend.launch import job
from rankslice.backend.runtime.figures import sampling
from rankslice.backend.runtime.keeper import VARIABLE
from rankslice.backend.runtime.sinks.results import read_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_folder(tmp_path_factory.mktemp("opened"))


@pytest.fixture(scope="module")
def images() -> NDArray[np.float32]:
    return np.random.default_rng(1).random((20, 1, 1, 8, 8), np.float32)


def processes() -> list[psutil.Process]:
    """Return the processes of this one's job."""
    return psutil.Process().children(recursive=True)


def has_computed(pipeline: rankslice.Pipeline) -> bool:
    """Return whether both ranks are seen to have taken processor time."""
    times = [figures.get("cpu_s", 0.0) for figures in pipeline.rank_figures().values()]
    return len(times) == 2 and min(times) > 0.1


def test_a_program_gets_what_a_run_gives(
    folder: Path, images: NDArray[np.float32], tmp_path: Path
) -> None:
    np.save(tmp_path / "images.npy", images)
    ended = command(
        "run", folder, "--input", tmp_path / "images.npy", "--results", tmp_path / "r.bin"
    )
    assert 0 == ended.code, ended.err
    expected = read_results(tmp_path / "r.bin").values(0)
    with rankslice.open(folder) as pipeline:
        assert "ready" == pipeline.state
        assert (expected[0] == pipeline(images[0])["probabilities"]).all()
        for result, values in zip(pipeline.map(images), expected, strict=True):
            assert (values == result["probabilities"]).all()

        until(lambda: has_computed(pipeline))

        taken = itertools.count()
        endless = (images[next(taken) % 20] for _ in itertools.count())
        results = pipeline.map(endless)
        next(results)
        assert next(taken) <= pipeline.limit
        results.close()

        async def ask_all() -> list[dict[str, NDArray[np.float32]]]:
            return await asyncio.gather(*(pipeline.infer(image) for image in images))

        together = asyncio.run(ask_all())
        assert all((a["probabilities"] == b).all() for a, b in zip(together, expected, strict=True))
        with pytest.raises(rankslice.RankSliceError, match="expected float32"):
            pipeline(images[0].astype(np.float64))
        secrets = json.loads(_variable())["secret"]
        assert not any(secrets in " ".join(process.cmdline()) for process in processes())
    assert "ended" == pipeline.state
    assert [] == processes()
    with pytest.raises(rankslice.PipelineError, match="the pipeline is closed"):
        pipeline(images[0])


def _variable() -> str:
    return next(
        variables[VARIABLE] for job in processes() if VARIABLE in (variables := job.environ())
    )


@pytest.mark.ci
def test_a_job_that_dies_is_told_at_once_and_at_each_later_call(
    folder: Path, images: NDArray[np.float32]
) -> None:
    with rankslice.open(folder) as pipeline:
        pipeline(images[0])
        victim = next(
            rank for rank in processes() if "1" == rank.environ().get("OMPI_COMM_WORLD_RANK")
        )
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(rankslice.PipelineError, match=r"rank 1 .* the process was killed"):
            for _ in pipeline.map(itertools.cycle(images)):
                pass
        with pytest.raises(rankslice.PipelineError, match=r"rank 1 .* the process was killed"):
            pipeline(images[0])
        assert "failed" == pipeline.state
    assert [] == processes()


@pytest.mark.ci
def test_an_error_of_the_program_ends_the_job_at_once(
    folder: Path, images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = []
    monkeypatch.setattr(sampling, "PERIOD_S", 60.0)  # the only sample is taken before any rank

    def fail() -> None:
        with rankslice.open(folder) as pipeline:
            assert [0.0, 0.0] == [figures["cpu_s"] for figures in pipeline.rank_figures().values()]
            waiting.append(pipeline.submit(images[0]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert waiting[0].done()
    assert [] == processes()


@pytest.mark.ci
def test_a_program_that_is_killed_leaves_nothing_behind(folder: Path) -> None:
    program = f"""
import rankslice, time
pipeline = rankslice.open({str(folder)!r})
print(1, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        assert b"1\n" == ended.stdout.readline()
        started = psutil.Process(ended.pid).children(recursive=True)
        assert started
        ended.kill()
    _, alive = psutil.wait_procs(started, timeout=15)
    assert [] == alive


@pytest.mark.ci
def test_processes_that_a_program_forks_are_told_and_its_job_goes_on(folder: Path) -> None:
    program = f"""
import multiprocessing, os, sys, warnings
import numpy, rankslice
warnings.simplefilter("ignore", DeprecationWarning)
image = numpy.zeros((1, 1, 8, 8), numpy.float32)

def ask():
    try:
        pipeline(image)
    except rankslice.PipelineError as error:
        print(error, pipeline.state, flush=True)
    pipeline.close()

with rankslice.open({str(folder)!r}) as pipeline:
    pipeline(image)
    with pipeline._starting:  # as a thread may that is not in the child
        child = os.fork()
        if not child:
            ask()
            sys.exit()
    os.waitpid(child, 0)
    worker = multiprocessing.get_context("fork").Process(target=ask)
    worker.start()
    worker.join()
    print(*pipeline(image), pipeline.state)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "") == (ended.returncode, ended.stderr)
    first, second, last = ended.stdout.splitlines()
    assert first == second
    assert first.startswith("the pipeline belongs to the parent process, which forked this one")
    assert first.endswith("failed")
    assert "probabilities ready" == last


@pytest.mark.parametrize(
    ("options", "message"),
    [({"window": 0}, "window: is 0; expected 1 to 4096"), ({"queue": -1}, "queue: is -1")],
)
def test_numbers_that_make_no_sense_are_refused(
    folder: Path, options: dict[str, int], message: str
) -> None:
    with pytest.raises(rankslice.RankSliceError, match=message):
        rankslice.open(folder, **options)


def test_what_is_no_build_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rankslice.RankSliceError, match="make a build folder with: rankslice build"):
        rankslice.open(tmp_path)


def test_the_package_is_imported_without_what_is_slow() -> None:
    program = (
        "import sys, rankslice; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "onnx", "pydantic", "cyclopts"} & {*ended.stdout.split()}


def mpirun_that(folder: Path, does: str) -> Path:
    """Return a script in the place of an mpirun."""
    path = folder / "mpirun"
    version = "echo 'mpirun (Open MPI) 5.0.0'"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {version}; else {does}; fi\n')
    path.chmod(0o755)
    return path


def test_a_job_that_misses_the_word_to_end_is_told_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_END_TIMEOUT_S", 0.9)
    started, heard = tmp_path / "started", tmp_path / "heard"
    trap = f"trap 'if [ -e {heard} ]; then kill $!; exit 1; fi; touch {heard}' TERM"
    mpirun = mpirun_that(tmp_path, f"{trap}; sleep 60 & touch {started}; while true; do wait; done")
    pipeline = rankslice.open(folder, mpirun=mpirun, wait=False)
    until(started.exists, 20)
    pipeline.abort()
    assert heard.exists()
    assert "failed" == pipeline.state
    assert [] == processes()
    with pytest.raises(rankslice.PipelineError, match="the pipeline was ended"):
        pipeline.wait_until_ready()


def test_a_command_whose_parent_ignores_its_children_tells_why_its_job_has_failed(
    folder: Path, tmp_path: Path
) -> None:
    mpirun = mpirun_that(tmp_path, "echo 'rankslice: rank 1 (b on pc): broken' >&2; exit 1")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ended = command("run", folder, "--mpirun", mpirun, "--results", tmp_path / "r.bin")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert 1 == ended.code
    assert "rank 1 (b on pc): broken" in ended.err
