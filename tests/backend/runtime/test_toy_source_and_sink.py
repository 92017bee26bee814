"""A new kind of source and a new kind of sink, each added as a single file from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from in_process import run_in_process
from jobs import FIGURE_2_RANKS, build_folder, figure_2

from rankslice.backend.runtime import sinks, sources
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.stages import Entry, Input, SourceStage
from rankslice.backend.runtime.pipeline.wiring import CREDIT
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.sources.arrivals import Queue, Timed
from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats import read_model
from rankslice.session.building.build_options import Quantisation
from rankslice.session.building.representative import conversion_of
from rankslice.session.run import Callbacks, FinishedRun, prepare, run

SOURCE = '''
from . import EndOfStreamError, Source


class CountSource(Source):
    """Frame f has the value f, once; how many there are shows when they end."""

    usage = ("count:N",)
    description = "count:N"
    reads_files = False

    @classmethod
    def accepts(cls, inputs):
        return len(inputs) == 1 and inputs[0].startswith("count:")

    def __init__(self, options, inputs):
        self.frames = options.frames
        self._end = int(options.inputs[0].partition(":")[2])
        self._next = 0

    def read(self, index, slots):
        if index < self._next:
            raise RuntimeError(f"frame {index} is gone")
        if index >= self._end:
            raise EndOfStreamError
        self._next = index + 1
        for slot in slots:
            slot[...] = index


SOURCE = CountSource
'''

SINK = '''
from . import Sink


class SumSink(Sink):
    """Writes the sum of each frame's first output into a text file beside the results."""

    @classmethod
    def open(cls, job, options):
        return cls(options.results.with_suffix(".sums"))

    def __init__(self, path):
        self._file = path.open("w")

    def write(self, frame, outputs):
        print(frame, float(outputs[0].sum()), file=self._file)

    def finish(self):
        print("end", file=self._file)

    def close(self):
        self._file.close()


SINK = SumSink
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build folder whose copy of the runtime has both, so that its ranks do."""
    folder = build_folder(tmp_path_factory.mktemp("toys"), figure_2(), FIGURE_2_RANKS)
    (folder / "runtime" / "sources" / "count_source.py").write_text(SOURCE)
    (folder / "runtime" / "sinks" / "sum_sink.py").write_text(SINK)
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add both to this process's packages, too."""
    for package, name, text in (
        (sources, "count_source", SOURCE),
        (sinks, "sum_sink", SINK),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield
    shutil.rmtree(tmp_path / "count_source")


def lines(results: Path) -> list[str]:
    return results.with_suffix(".sums").read_text().splitlines()


def assert_all_came_out(results: Path, frames: int) -> None:
    kept = read_results(results)
    assert list(range(frames)) == kept.records["frame"].tolist()
    sums = [float(values.sum()) for values in kept.values(0)]
    assert [*(f"{n} {value}" for n, value in enumerate(sums)), "end"] == lines(results)
    assert len(set(sums)) == frames


@pytest.mark.parametrize(("frames", "expected"), [(None, 7), (3, 3), (9, 7)])
def test_a_job_in_process_runs_until_the_source_ends(
    built: Path, tmp_path: Path, frames: int | None, expected: int
) -> None:
    results = tmp_path / "results.bin"
    records = run_in_process(built, RunOptions(("count:7",), frames=frames, results=results))
    assert_all_came_out(results, expected)
    assert [expected] == [each.source.frames for each in records if each.source]


def test_a_job_of_mpirun_runs_until_the_source_ends(built: Path, tmp_path: Path) -> None:
    counts: list[int] = []
    finished_runs: list[FinishedRun] = []
    results = tmp_path / "results.bin"
    prepared = prepare(built, RunOptions(("count:40",)), results=results)
    assert prepared.source.frames is None
    finished = run(prepared, Callbacks(counts.append, on_ran=finished_runs.append))
    assert 40 == len(read_results(results)) == finished.summary.completed == counts[-1]
    assert tuple(f"frame {n}" for n in range(40)) == finished.labels
    assert [finished] == finished_runs


def test_verify_is_refused_before_the_job_starts(built: Path) -> None:
    prepared = prepare(built, RunOptions(("count:7",)))
    with pytest.raises(RankSliceError) as error:
        run(prepared, verify=True)
    expected = (
        "--verify: needs each frame twice, and count:7 gives it once;"
        " record frames to a file and verify those"
    )
    assert expected == str(error.value)
    assert not (built / "results.bin").exists()


def test_messages_and_help_name_it() -> None:
    assert "count:N" in sources.usage()
    with pytest.raises(JobError) as error:
        sources.open_source(RunOptions(("nowhere",)), [])
    assert "count:N" in str(error.value)


def test_frames_that_never_came_were_not_dropped() -> None:
    now = 0.0
    spec = Tensor("x", "float32", (1,))
    arrivals = Timed(None, 10.0, Queue(2, "drop", clock=lambda: now))
    source = sources.open_source(RunOptions(("count:4",)), [spec])
    ring, credits = Ring(spec, 9, 0), Ring(CREDIT, 9, 1)
    stage = SourceStage(source, arrivals, [Entry([ring], 9)], Input(credits, 0))
    assert stage.is_ready()
    now = 0.25  # frames 0 and 1 wait, 2 is dropped
    for _ in range(2):
        assert stage.is_ready()
        stage.step()
    now = 0.75  # frames 3 and 4 wait, 5, 6 and 7 would be dropped, but there is no frame 4
    while not stage.finished:
        assert stage.is_ready()
        stage.step()
    assert (3, [2]) == (stage.frame, arrivals.dropped)
    assert ring.end == 3


def test_frames_for_a_conversion_must_be_readable_twice(tmp_path: Path) -> None:
    onnx.save(figure_2(), tmp_path / "m.onnx")
    model = read_model(tmp_path / "m.onnx")
    keras = replace(model, graph=replace(model.graph, format="keras"))
    with pytest.raises(RankSliceError) as error:
        conversion_of(keras, Quantisation("int8", Path("count:7")))
    assert str(error.value).startswith(
        "--representative: frames of count:7 cannot be read twice; expected images ("
    )
