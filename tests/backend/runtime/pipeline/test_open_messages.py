"""Messages of changing size between ranks: honest ones, and those of a peer that lies."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from in_process import run_in_process
from jobs import build_folder, use_null_engine, write_job
from real_jobs import chain
from twin import TwinTransport

from rankslice.backend.runtime.engines.null_engine import NullEngine
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.session.build_folder import read_plan

WIDTH = 16
"""Bound of the tensor ``t0`` between the ranks, float32 of shape [1, open]."""

WAYS = [(True, False), (True, True), (False, False)]
"""Whether tensors go by messages, and whether these are compressed."""

Bytes = np.ndarray


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of two ranks with an open tensor between them; its size is another for each frame."""
    folder = build_folder(tmp_path, chain(2, WIDTH), {"L0": 0, "L1": 1})
    use_null_engine(folder)
    plan = read_plan(folder)
    (tensor,) = plan.job.between
    job = replace(plan.job, between=(replace(tensor, symbols=("", "?")),))
    write_job(folder, replace(plan, job=job))
    return folder


def run(folder: Path, frames: int, *, by_messages: bool = True, compress: bool = False) -> int:
    """Run the job; return how many results there are."""
    options = RunOptions(results=folder / "results.bin", frames=frames)
    run_in_process(folder, options, direct=() if by_messages else None, compress=compress)
    return len(read_results(folder / "results.bin"))


@pytest.mark.parametrize(("by_messages", "compress"), WAYS)
def test_frames_of_any_size_come_out_once_and_in_order(
    folder: Path, by_messages: bool, compress: bool
) -> None:
    assert 300 == run(folder, 300, by_messages=by_messages, compress=compress)


def test_only_the_bytes_that_are_there_travel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = set()
    honest = TwinTransport.send_part

    def note(twin: TwinTransport, lane: int, slot: int, nbytes: int) -> None:
        lengths.add(nbytes)
        honest(twin, lane, slot, nbytes)

    monkeypatch.setattr(TwinTransport, "send_part", note)
    run(folder, 300)
    assert {64 + 4 * size for size in range(WIDTH + 1)} == lengths


def put(layout: str, offset: int, value: int) -> Callable[[Bytes], Bytes]:
    def tamper(message: Bytes) -> Bytes:
        struct.pack_into(layout, message.data, offset, value)
        return message

    return tamper


LIES: dict[str, tuple[Callable[[Bytes], Bytes], str]] = {
    "size beyond the bound": (put("<i", 20, WIDTH + 1), r"beyond its bound \[1, 16\]"),
    "greatest size": (put("<i", 20, 2**31 - 1), "beyond its bound"),
    "negative size": (put("<i", 20, -5), "dimension 1 is -5"),
    "other fixed size": (put("<i", 16, 2), "dimension 0 is 2, expected 1"),
    "more dimensions": (put("<i", 8, 3), "has 3 dimensions, not 2"),
    "no dimensions": (put("<i", 8, 0), "has 0 dimensions, not 2"),
    "negative dimensions": (put("<i", 8, -1), "without a valid header"),
    "most dimensions": (put("<i", 8, 2**31 - 1), "without a valid header"),
    "other type": (put("<I", 12, 1), "of another type"),
    "negative bytes": (put("<q", 0, -4), "came with -4 bytes"),
    "most bytes": (put("<q", 0, 2**63 - 1), "came with 9223372036854775807 bytes"),
    "half a header": (lambda message: message[:32], "a message of 32 bytes"),
    "one byte": (lambda message: message[:1], "a message of 1 bytes"),
    "longer": (lambda message: np.append(message, [0, 0]).astype(np.uint8), "does not fit"),
    "longer than a slot": (
        lambda message: np.zeros(4096, np.uint8),
        "sent 4096 bytes through channel 1, more than its tensor may have",
    ),
    "nothing but ones": (lambda message: message | 255, "without a valid header"),
    "nothing but zeros": (lambda message: message & 0, "without a valid header"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_message_that_lies_ends_the_job_with_its_rank_and_tensor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    tamper, expected = LIES[lie]
    sent = 0

    def lying(twin: TwinTransport, lane: int, slot: int, nbytes: int) -> None:
        nonlocal sent
        sent += 1
        message = twin._sends[lane].slots[slot][:nbytes].copy()
        twin._post(lane, slot, tamper(message) if sent == 10 else message)

    monkeypatch.setattr(TwinTransport, "send_part", lying)
    with pytest.raises(JobError, match=expected) as caught:
        run(folder, 30)
    text = str(caught.value)
    assert text.startswith("rank 1 ")
    assert "rank 0" in text
    assert "tensor 't0'" in text or "channel 1" in text
    assert len(text.splitlines()) == 1
    assert len(read_results(folder / "results.bin")) < 10


@pytest.mark.ci
@pytest.mark.parametrize(("by_messages", "compress"), WAYS)
def test_a_jobs_memory_does_not_grow_with_its_frames(
    folder: Path, monkeypatch: pytest.MonkeyPatch, by_messages: bool, compress: bool
) -> None:
    frames, honest, runs = 2000, NullEngine.run, itertools.count()
    samples = np.zeros(2 * frames)

    def note(engine: NullEngine, *tensors: Any) -> None:
        samples[next(runs)] = tracemalloc.get_traced_memory()[0]
        honest(engine, *tensors)

    monkeypatch.setattr(NullEngine, "run", note)
    tracemalloc.start()
    try:
        run(folder, frames, by_messages=by_messages, compress=compress)
    finally:
        tracemalloc.stop()
    quarters = np.median(samples.reshape(4, -1), axis=1)
    # Over a quarter of the frames, once what is bounded has filled: 16 bytes for each.
    assert quarters[3] - quarters[2] < 4 * frames


@pytest.mark.parametrize(("by_messages", "compress"), WAYS)
def test_a_tensor_that_has_no_elements_in_any_frame_ends_no_stream(
    tmp_path: Path, by_messages: bool, compress: bool
) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] x, float[0, 4] past) =>
        (float[2, 4] y, float[0, 4] now) <int64[1] zero = {0}>
        { [cut] none = Slice(x, zero, zero)  [join] y = Concat <axis = 0> (none, x)
          [keep] now = Neg(past) }"""
    )
    folder = build_folder(tmp_path, model, {"cut": 0, "join": 1, "keep": 1})
    assert 30 == run(folder, 30, by_messages=by_messages, compress=compress)
    results = read_results(folder / "results.bin")
    assert [[(2, 4)] * 30, [(0, 4)] * 30] == [results.shapes(output) for output in (0, 1)]
