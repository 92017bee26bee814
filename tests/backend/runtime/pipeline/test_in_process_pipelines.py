"""Whole pipelines through the in-process twin."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from in_process import run_in_process
from jobs import (
    FIGURE_2_RANKS,
    build_folder,
    figure_2,
    unsliced_frames,
    unsliced_outputs,
    use_null_engine,
)
from plans import turn_weights
from poisoned import LAYERS, frame, poisoned_model, result
from strategies import Network, assignments, networks, pairs_of
from twin import ThreadLinks

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.rank import run_rank
from rankslice.backend.runtime.pipeline.wiring import pairs_within_boards
from rankslice.backend.runtime.sinks.results import Results, read_results
from rankslice.backend.runtime.sizes import Slot
from rankslice.backend.runtime.sources import Source
from rankslice.backend.runtime.sources.random_source import RandomSource
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.summary import summarise
from rankslice.session.building.build import BuildOptions, build


def run(
    folder: Path,
    *,
    eager_bytes: int = 4096,
    pairs: Collection[tuple[int, int]] | None = None,
    compress: bool = False,
    **options: object,
) -> Results:
    results = folder / "results.bin"
    run_in_process(
        folder,
        RunOptions(results=results, exact=True, **options),  # type: ignore[arg-type]
        eager_bytes=eager_bytes,
        direct=pairs,
        compress=compress,
    )
    return read_results(results)


def check(folder: Path, results: Results, frames: int) -> None:
    """Compare results with those of the unsliced model."""
    assert list(range(frames)) == results.records["frame"].tolist()
    for output, values in enumerate(unsliced_outputs(folder, ["random"], frames)):
        np.testing.assert_array_equal(values, results.values(output))


def check_open(folder: Path, results: Results, frames: int) -> None:
    """The same, of outputs whose size changes from frame to frame."""
    assert list(range(frames)) == results.records["frame"].tolist()
    expected = unsliced_frames(folder, ["random"], frames)
    for output, values in enumerate(zip(*expected, strict=True)):
        for before, after in zip(values, results.frames(output), strict=True):
            np.testing.assert_array_equal(before, after, strict=True)


@given(data=st.data(), network=networks())
def test_a_sliced_network_computes_what_the_unsliced_one_does(
    data: st.DataObject, network: Network
) -> None:
    ranks = data.draw(assignments(network.graph()))
    window = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    eager_bytes = data.draw(st.sampled_from([0, 1 << 20]))
    pairs = data.draw(pairs_of(1 + max(ranks.values())))
    compress = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_folder(Path(temporary), network.model(), ranks)
        ways = {"eager_bytes": eager_bytes, "pairs": pairs, "compress": compress}
        results = run(folder, **ways, frames=7, window=window)
        check(folder, results, 7)


@settings(max_examples=15)
@given(data=st.data(), network=networks(rows="n"))
def test_a_sliced_network_with_an_open_size_computes_what_the_unsliced_one_does(
    data: st.DataObject, network: Network
) -> None:
    ranks = data.draw(assignments(network.graph()))
    window = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    pairs = data.draw(pairs_of(1 + max(ranks.values())))
    compress = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_folder(Path(temporary), network.model(), ranks, {"n": (5,)})
        results = run(folder, pairs=pairs, compress=compress, frames=9, window=window)
        check_open(folder, results, 9)


@settings(max_examples=12)
@given(data=st.data(), network=networks())
def test_ranks_that_take_turns_compute_what_the_unsliced_model_does(
    data: st.DataObject, network: Network
) -> None:
    entries = data.draw(assignments(network.graph(), max_ranks=3))
    weights = data.draw(turns_of(entries))
    window = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    frames = data.draw(st.integers(0, 13))
    eager_bytes = data.draw(st.sampled_from([0, 1 << 20]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_folder(Path(temporary), network.model(), entries, weights=weights)
        pairs = data.draw(pairs_of(len(read_driver(folder / "driver.py").ranks)))
        ways = {"eager_bytes": eager_bytes, "pairs": pairs, "compress": data.draw(st.booleans())}
        results = run(folder, **ways, frames=frames, window=window)
        check(folder, results, frames)


@pytest.mark.ci
@settings(max_examples=25, deadline=None)
@given(data=st.data(), network=networks(rows="n"))
def test_ranks_that_take_turns_with_an_open_size_compute_what_the_unsliced_model_does(
    data: st.DataObject, network: Network
) -> None:
    entries = data.draw(assignments(network.graph(), max_ranks=3))
    weights = data.draw(turns_of(entries))
    window = data.draw(st.one_of(st.none(), st.integers(1, 8)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_folder(Path(temporary), network.model(), entries, {"n": (5,)}, weights)
        pairs = data.draw(pairs_of(len(read_driver(folder / "driver.py").ranks)))
        compress = data.draw(st.booleans())
        results = run(folder, pairs=pairs, compress=compress, frames=11, window=window)
        check_open(folder, results, 11)


def turns_of(entries: Mapping[str, int]) -> st.SearchStrategy[dict[int, tuple[int, ...]]]:
    """Draw weights for one entry at least."""
    return turn_weights(1 + max(entries.values()), at_least=1)


@pytest.mark.parametrize("frames", [0, 1, 2, 9])
def test_a_stream_of_any_length_ends_though_ranks_wait_for_their_turn(
    tmp_path: Path, frames: int
) -> None:
    entries = dict.fromkeys(FIGURE_2_RANKS, 0)
    folder = build_folder(tmp_path, figure_2(), entries, weights={0: (3, 1, 1)})
    assert list(range(frames)) == run(folder, frames=frames).records["frame"].tolist()


def test_steps_of_ranks_that_take_turns_name_the_frames_of_the_stream(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS, weights={1: (2, 1)})
    use_null_engine(folder)
    job = read_driver(folder / "driver.py")
    options = RunOptions(results=folder / "results.bin", frames=6, bind=False)
    links = ThreadLinks(len(job.ranks))
    steps: list[list[str]] = [[] for _ in job.ranks]

    def note(rank: int, frame: int, name: bytes) -> None:
        steps[rank].append(f"{name.rstrip(bytes(1)).decode()}{frame}")

    with ThreadPoolExecutor(len(job.ranks)) as pool:
        ended = [
            pool.submit(
                run_rank, job, folder, options, links.transport(rank), on_step=partial(note, rank)
            )
            for rank in range(len(job.ranks))
        ]
        for future in ended:
            future.result(60)
    # The last step of each is to notice the end of the stream.
    assert [f"segment 0, frame {frame}" for frame in (0, 2, 3, 5, 6)] == steps[1]
    assert [f"segment 0, frame {frame}" for frame in (1, 4, 7)] == steps[2]


@pytest.mark.parametrize("window", [1, None])
@pytest.mark.parametrize(("board", "source"), [("a", 0), ("b", 1), ("c", 3)])
def test_frames_may_enter_at_any_of_the_ranks_that_take_turns(
    board: str, source: int, window: int | None, tmp_path: Path
) -> None:
    onnx.save(figure_2(), tmp_path / "model.onnx")
    mapping = {
        "a_cpu0|b_cpu0*2": ["MaxPool1", "FC1", "Conv1"],
        "b_cpu1|c_cpu0|c_cpu1": ["Add1"],
        "a_cpu1": ["Relu1"],
    }
    boards = {name: {"host": f"host-{name}", "cores": 2} for name in "abc"}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    (tmp_path / "platform.yaml").write_text(json.dumps({"boards": boards}))
    paths = (tmp_path / "mapping.json", tmp_path / "platform.yaml", tmp_path / "out")
    options = BuildOptions(source_board=board)
    folder = build(tmp_path / "model.onnx", paths[0], str(paths[1]), paths[2], options).folder
    job = read_driver(folder / "driver.py")
    assert source == job.source
    results = run(folder, frames=20, window=window, pairs=pairs_within_boards(job))
    assert list(range(20)) == results.records["frame"].tolist()
    (expected,) = unsliced_outputs(folder, ["random"], 20)
    np.testing.assert_array_equal(expected, results.values(0))


@pytest.mark.parametrize("window", [1, 2, 3, 20])
@pytest.mark.parametrize(("eager_bytes", "pairs"), [(0, ()), (1 << 20, ()), (0, None)])
def test_any_window_gives_every_frame_once_and_in_order(
    built: Path, window: int, eager_bytes: int, pairs: tuple[()] | None
) -> None:
    results = run(built, eager_bytes=eager_bytes, pairs=pairs, frames=50, window=window)
    assert list(range(50)) == results.records["frame"].tolist()


def test_a_run_without_frames_ends_with_an_empty_result(built: Path, copied: Path) -> None:
    assert len(run(copied, frames=0)) == 0


def test_the_source_may_be_another_rank_than_the_first_layers(tmp_path: Path) -> None:
    ranks = {**FIGURE_2_RANKS, "MaxPool1": 1, "FC1": 0}
    folder = build_folder(tmp_path, figure_2(), ranks)
    expected = unsliced_outputs(folder, ["random"], 5)
    np.testing.assert_array_equal(expected[0], run(folder, frames=5).values(0))


def test_every_frame_keeps_its_identity_through_a_null_engine(copied: Path, tmp_path: Path) -> None:
    use_null_engine(copied)
    frames = np.arange(300, dtype=np.float32).reshape(300, 1, 1, 1) * np.ones((4, 8, 8), np.float32)
    np.savez(tmp_path / "frames.npz", x=frames)
    results = run(copied, inputs=(str(tmp_path / "frames.npz"),))
    assert list(range(300)) == results.values(0)[:, 0, 0, 0, 0].tolist()


def test_no_more_frames_than_the_window_are_inside(copied: Path) -> None:
    use_null_engine(copied, sleep_ms=2)
    options = RunOptions(results=copied / "results.bin", frames=40, window=3)
    source = next(r.source for r in run_in_process(copied, options) if r.source)
    # Five sleeps of 2 ms lie on the way of a frame, and at most two frames are before it.
    assert source.latency_ms["p50"] >= 8
    assert source.window == 3


def test_reading_a_frame_and_writing_its_results_are_measured(copied: Path) -> None:
    use_null_engine(copied)
    options = RunOptions(results=copied / "results.bin", frames=5)
    records = run_in_process(copied, options)
    (read,) = (record.source.preprocess_ms for record in records if record.source)
    (written,) = (record.sink.postprocess_ms for record in records if record.sink)
    assert 0 < read["mean"] <= read["max"]
    assert 0 < written["mean"] <= written["max"]


@pytest.mark.parametrize(
    ("fps", "words"),
    [(None, "rank 0 (local_cpu"), (50.0, "the source: 50 frames/s arrive")],
)
def test_a_source_that_is_slow_or_waits_is_told_as_what_limits(
    copied: Path, monkeypatch: pytest.MonkeyPatch, fps: float | None, words: str
) -> None:
    use_null_engine(copied, sleep_ms=1)
    read = RandomSource.read

    def slow(self: RandomSource, index: int, slots: Sequence[Slot]) -> None:
        time.sleep(8e-3)
        read(self, index, slots)

    monkeypatch.setattr(RandomSource, "read", slow)
    monkeypatch.setattr(RandomSource, "lent", Source.lent)
    options = RunOptions(results=copied / "results.bin", frames=40, fps=fps)
    records = run_in_process(copied, options)
    completed_s = read_results(copied / "results.bin").records["completed_s"]
    bottleneck = summarise(records, completed_s).bottleneck
    assert bottleneck.startswith(words)
    assert (" ms reading frames, " in bottleneck) == (fps is None)


@pytest.mark.parametrize("direct", [None, ()])
def test_a_rank_computes_or_waits_and_sends_messages_for_as_long_as_they_take(
    copied: Path, direct: tuple[()] | None
) -> None:
    use_null_engine(copied, sleep_ms=3)
    records = run_in_process(
        copied, RunOptions(frames=40, direct=direct is None), direct=direct, eager_bytes=0
    )
    for record in records:
        passed_ms = record.compute_ms["mean"] + record.wait_ms
        assert passed_ms <= 1e3 * record.wall_s / 40
    # The others have two segments, so a frame comes each 6 ms, and it takes this one 3 ms.
    assert records[1].wait_ms > 1
    sent = [record.send_ms for record in records]
    assert [0, 0, 0] == sent if direct is None else min(sent) > 0


def test_a_frame_rate_that_the_pipeline_cannot_hold_fails_the_job(copied: Path) -> None:
    use_null_engine(copied, sleep_ms=20)
    with pytest.raises(JobError, match=r"rank 0 .*source, frame \d+: frame \d+ arrived while"):
        run(copied, frames=500, fps=1000, queue=8, direct=False)


def test_dropped_frames_are_named_and_the_others_come_out(copied: Path) -> None:
    use_null_engine(copied, sleep_ms=5)
    options = RunOptions(
        results=copied / "results.bin", frames=100, fps=1000, overflow="drop", queue=4
    )
    source = next(r.source for r in run_in_process(copied, options) if r.source)
    assert source.dropped
    assert source.frames + len(source.dropped) == 100
    assert len(read_results(copied / "results.bin")) == source.frames


def test_a_frame_rate_below_the_pipelines_is_kept(built: Path) -> None:
    begin = time.monotonic()
    results = run(built, frames=21, fps=200)
    assert results.completed_s[-1] - begin >= 20 / 200


def test_an_engine_that_fails_ends_the_job_with_its_place(copied: Path) -> None:
    victim = next(copied.glob("submodels/*.3.0.onnx"))
    victim.write_bytes(victim.read_bytes()[:-40])
    with pytest.raises(JobError, match=r"rank 2 \(local_cpu\d+\.3 on .*\): .*cannot load it"):
        run(copied, frames=5)


def test_a_source_that_fails_later_ends_the_job_with_its_frame(built: Path, tmp_path: Path) -> None:
    from PIL import Image

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,4,4] x) => (float[1,3,4,4] y) '
        "{ a = Relu(x) y = Sigmoid(a) }"
    )
    folder = build_folder(tmp_path, model, {"Relu_0": 0, "Sigmoid_1": 1})
    for number in range(3):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{number}.png")
    (tmp_path / "3.png").write_bytes(b"no image")
    with pytest.raises(JobError, match=r"rank 0 .*: source, frame 3: .*3.png: not an image"):
        run(folder, inputs=(str(tmp_path),), direct=False)
    assert 3 >= len(read_results(folder / "results.bin"))


def refusals(folder: Path, jobs: Sequence[Job], windows: Sequence[int]) -> list[str]:
    """Return what ranks say that are started with these jobs and windows."""
    import threading

    network = ThreadLinks(3)
    messages: list[str] = []

    def work(rank: int) -> None:
        options = RunOptions(results=folder / "r", window=windows[rank], bind=False)
        try:
            run_rank(jobs[rank], folder, options, network.transport(rank))
        except JobError as error:
            messages.append(str(error))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return messages


def test_ranks_of_different_options_refuse_to_start(copied: Path) -> None:
    job = read_driver(copied / "driver.py")
    messages = refusals(copied, [job] * 3, [5, 5, 4])
    assert len(messages) == 3
    assert all("rank 2 was started with window 4, rank 0 with 5" in text for text in messages)


def test_boards_with_different_drivers_refuse_to_start_and_name_both_digests(
    copied: Path,
) -> None:
    job = read_driver(copied / "driver.py")
    edited = replace(job, window=job.window - 1)
    messages = refusals(copied, [job, edited, edited], [5] * 3)
    message = f"rank 1 was started with driver {edited.sha256!r}, rank 0 with {job.sha256!r}"
    assert len(messages) == 3
    assert all(message in text for text in messages)


@pytest.mark.parametrize(
    ("pairs", "compress"),
    [(None, False), ((), False), (((0, 1),), False), (((1, 2),), False), ((), True)],
)
@pytest.mark.parametrize("eager_bytes", [0, 4096])
def test_frames_that_fail_are_left_out_on_all_ways(
    tmp_path: Path,
    pairs: Collection[tuple[int, int]] | None,
    compress: bool,
    eager_bytes: int,
) -> None:
    folder = build_folder(
        tmp_path, poisoned_model(tmp_path), {layer: rank for rank, layer in enumerate(LAYERS)}
    )
    np.savez(tmp_path / "frames.npz", i=np.stack([frame(number, 3) for number in range(20)]))
    options = {
        "inputs": (str(tmp_path / "frames.npz"),),
        "pairs": pairs,
        "compress": compress,
        "eager_bytes": eager_bytes,
    }
    with pytest.raises(
        JobError, match=r"segment 0, frame 0: RuntimeError: .*idx=99 must be within"
    ):
        run(folder, **options)
    results = run(folder, **options, skip_failed=True)
    computed = [number for number in range(20) if number % 3]
    assert computed == results.numbers
    assert [[result(number)] for number in computed] == results.values(0).tolist()


@pytest.mark.parametrize(
    ("given", "reads"), [({}, 0), ({"overflow": "drop", "fps": 1000.0, "queue": 20}, 20)]
)
def test_frames_that_cannot_be_dropped_are_computed_where_they_lie(
    copied: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], reads: int
) -> None:
    read, numbers = RandomSource.read, []

    def counted(self: RandomSource, index: int, slots: Sequence[Slot]) -> None:
        numbers.append(index)
        read(self, index, slots)

    monkeypatch.setattr(RandomSource, "read", counted)
    options = RunOptions(results=copied / "results.bin", frames=20, exact=True, **given)
    run_in_process(copied, options)
    assert reads == len(numbers)
    (outputs,) = unsliced_outputs(copied, ["random"], 20)
    np.testing.assert_array_equal(outputs, read_results(copied / "results.bin").values(0))
