"""A video through three virtual boards, at a rate that one of them alone cannot do.

Each board has a third of the digits' network and sleeps besides, so that a frame takes 25 ms there.
Each frame of the video shows a digit. Every frame must come out, in order; the labelled video is
kept to be looked at.

    python benchmarks/video.py [--minutes M] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
from across_boards import Boards, exit_without_boards

from rankslice.backend.package import write_packages
from rankslice.framework.plan import plan_from_json
from rankslice.networks.digits import digits_model, heldout_digits

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from boards.deployments import build_for, deploy, run
from real_jobs import replace_file

FPS = 30
EACH_SHOWN = 5
SIDE = 64
STAGE_MS = 25
SLICES = (["conv1..pool1"], ["conv3..conv4"], ["shortcut..softmax"])

SLEEPING = f"""

_run = OnnxRuntimeEngine.run


def _slow(self, *arguments):
    import time

    time.sleep({STAGE_MS / 1e3})
    return _run(self, *arguments)


OnnxRuntimeEngine.run = _slow
"""


def write_video(path: Path, frames: int) -> list[int]:
    """Write a video of digits; return what each frame shows."""
    images, labels = heldout_digits()
    codec = cv2.VideoWriter.fourcc(*"mp4v")
    writer = cv2.VideoWriter(str(path), codec, FPS, (SIDE, SIDE))
    shown = [number // EACH_SHOWN % len(images) for number in range(frames)]
    for index in shown:
        grey = np.kron(images[index], np.ones((SIDE // 8, SIDE // 8))).astype(np.uint8)
        writer.write(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR))
    writer.release()
    return [int(labels[index]) for index in shown]


def let_stages_last(out: Path) -> None:
    """Change a build folder and its packages so that each stage sleeps besides computing."""
    engine = out / "runtime" / "engines" / "onnxruntime_engine.py"
    replace_file(engine, engine.read_bytes() + SLEEPING.encode())
    shutil.rmtree(out / "packages")
    write_packages(out, plan_from_json((out / "plan.json").read_text()))


def measure(rack: Boards, place: Path, minutes: float) -> None:
    """Run a video through the boards, and print what came of it."""
    digits = write_video(place / "digits.mp4", round(minutes * 60 * FPS))
    mapping = {f"{board.name}_cpu0": layers for board, layers in zip(rack, SLICES, strict=True)}
    out = build_for(rack, place / "three", digits_model(), mapping, video=True)
    let_stages_last(out)
    assert deploy(rack, out).code == 0
    (place / "labels.txt").write_text("\n".join("0123456789"))
    given = ("--input", place / "digits.mp4", "--scale", f"{1 / 256}")
    told = ("--output", place / "labelled.mp4", "--json", place / "told.json")
    ended = run(rack, out, *given, "--labels", place / "labels.txt", *told)
    assert ended.code == 0, ended.err
    record = json.loads((place / "told.json").read_text())
    found = [each["classes"][0]["class"] for each in record["classes"]]
    assert [each["frame"] for each in record["classes"]] == list(range(len(digits)))
    right = np.mean(np.array(found) == digits)
    compute_ms = [rank["compute_ms"]["mean"] for rank in record["ranks"]]
    print(
        f"{record['completed']} of {len(digits)} frames came out, in order, at"
        f" {record['throughput_fps']:.2f} frames/s; {right:.1%} of the labels are right\n"
        f"latency p50 {record['latency_ms']['p50']:.0f} ms, p99 {record['latency_ms']['p99']:.0f}"
        f" ms, max {record['latency_ms']['max']:.0f} ms\n"
        f"a board alone would take {sum(compute_ms):.0f} ms for a frame:"
        f" {1e3 / sum(compute_ms):.1f} frames/s"
    )


def main() -> None:
    """Run a video through three virtual boards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", type=Path, help="folder to make, for the labelled video")
    given = parser.parse_args()
    exit_without_boards()
    with Boards(3, disk_mb=300) as rack, tempfile.TemporaryDirectory() as folder:
        measure(rack, Path(folder), given.minutes)
        if given.keep is not None:
            given.keep.mkdir(parents=True)
            shutil.copy(Path(folder, "labelled.mp4"), given.keep)


if __name__ == "__main__":
    main()
