"""The figures of a thesis on scheduling networks, made again on a small detector and a video.

E. Iosip, "Computation scheduling in neural network inference on embedded hardware" (CTU in Prague,
2020), section 6.3, runs a detector on videos in several frameworks, estimates the warm-up by eye,
and shows first frames (6.4, 6.5), percentiles, execution-time jitter and means with 95 % intervals
(6.7). Here the shipped detector of digits runs before its non-maximum suppression, on a video of
its photographs at 30 frames per second, in three benchmarks with a page each:

* onnxruntime and LiteRT, each as a job of one rank on the same core, in turns;
* LiteRT on two cores that take frames in turn, against the single one;
* LiteRT beside a co-runner that computes on its core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import onnx
from timing import console, machine

from rankslice.commands.bench.show import bench_parts
from rankslice.measurement.bench.bench_records import Bench, write_bench
from rankslice.session.bench.bench import bench
from rankslice.session.bench.bench_options import BenchOptions
from rankslice.session.building.build import build
from rankslice.session.building.cut_mapping import mapping_of_cuts
from rankslice.session.shared_options import mapping_from
from rankslice.views.bench_page import bench_page
from rankslice.views.page import page_html
from rankslice.views.terminal import progress_bars, show

MODELS = Path(__file__).parents[1] / "models"
FRAMES_OF_PHOTOGRAPH = 50
SIZE = (480, 640)


def detector_before_suppression() -> onnx.ModelProto:
    """Return the ONNX detector as far as ``digit_detector.tflite`` goes."""
    model = onnx.load(MODELS / "digit_detector.onnx")
    names = [node.name for node in model.graph.node]
    del model.graph.node[names.index("probabilities") + 1 :]
    del model.graph.output[:]
    for name, shape in (("all boxes", [1, 768, 4]), ("probabilities", [1, 10, 768])):
        output = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        model.graph.output.append(output)
    onnx.checker.check_model(model)
    return model


def write_video(path: Path, fps: float) -> None:
    """Write a video that shows each photograph for some frames, from left to right."""
    height, width = SIZE
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), fps, (width, height))
    for photograph in sorted((MODELS / "photographs").iterdir()):
        wide = cv2.resize(cv2.imread(str(photograph)), (width + FRAMES_OF_PHOTOGRAPH, height))
        for left in range(FRAMES_OF_PHOTOGRAPH):
            writer.write(wide[:, left : left + width])
    writer.release()


def measure(folders: Sequence[Path], options: BenchOptions, title: str) -> Bench:
    """Return the benchmark of one build folder, or of two in turns."""
    with progress_bars() as progress:
        bar = progress.add_task(title)
        return bench(
            folders[0],
            folders[1] if len(folders) > 1 else None,
            options,
            on_progress=lambda step, done, total: progress.update(bar, completed=done, total=total),
        )


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--starts", type=int, default=30, help="of each job under each load; the thesis has 30")
    add("--frames", type=int, default=300, help="of each start")
    add("--fps", type=float, default=30.0, help="of the video")
    add("--out", type=Path, default=Path("thesis"), help="folder for raw values and pages")
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    console.print(machine())
    with TemporaryDirectory() as name:
        folder, video = Path(name), Path(name) / "video.mp4"
        write_video(video, args.fps)
        onnx.save(detector_before_suppression(), folder / "detector.onnx")
        tflite = MODELS / "digit_detector.tflite"
        one, turns = mapping_of_cuts(()), {"local_cpu0|local_cpu1": ["PAD_0..LOGISTIC_16"]}
        onnxruntime = build(folder / "detector.onnx", one, "local", folder / "onnxruntime").folder
        litert = build(tflite, one, "local", folder / "litert").folder
        in_turn = build(tflite, mapping_from(turns), "local", folder / "in-turn").folder
        usual = BenchOptions(
            starts=args.starts, frames=args.frames, fps=args.fps, inputs=(str(video),)
        )
        beside = replace(usual, load="cpu", busy=(0.5, 1.0))
        for title, folders, options in (
            ("engines", (onnxruntime, litert), usual),
            ("in turn", (in_turn, litert), usual),
            ("beside a co-runner", (litert,), beside),
        ):
            results = measure(folders, options, title)
            out = args.out / f"{title.replace(' ', '-')}.json"
            write_bench(results, out)
            out.with_suffix(".html").write_text(page_html(bench_page(results)), encoding="utf-8")
            show(console, title, *bench_parts(results))


if __name__ == "__main__":
    main()
