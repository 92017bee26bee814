"""The figures of a thesis on scheduling networks, made again for two engines on one network.

E. Iosip, "Computation scheduling in neural network inference on embedded hardware" (CTU in Prague,
2020), section 6.3, estimates the warm-up by eye, and shows percentiles, execution-time jitter and
means with 95 % intervals of frameworks on one network. Here onnxruntime and LiteRT run the digit
classifier, each as a job of one rank on the same core, in turns. The page has a figure for each of
the thesis': first frames (6.4, 6.5), latency by percentile, and means with their intervals (6.7).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from timing import console, machine

from rankslice.commands.bench.show import bench_parts
from rankslice.measurement.bench.bench_records import Bench, write_bench
from rankslice.session.bench.bench import bench
from rankslice.session.bench.bench_options import BenchOptions
from rankslice.session.building.build import build
from rankslice.session.building.cut_mapping import mapping_of_cuts
from rankslice.views.bench_page import bench_page
from rankslice.views.page import page_html
from rankslice.views.terminal import progress_bars, show

MODELS = Path(__file__).parents[1] / "models"


def measure(models: dict[str, Path], folder: Path, options: BenchOptions) -> Bench:
    """Return the benchmark of two models, each on one rank, in turns."""
    first, second = (
        build(model, mapping_of_cuts(()), "local", folder / engine).folder
        for engine, model in models.items()
    )
    with progress_bars() as progress:
        bar = progress.add_task("measuring")
        return bench(
            first,
            second,
            options,
            on_progress=lambda step, done, total: progress.update(bar, completed=done, total=total),
        )


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--onnx", type=Path, default=MODELS / "digits.onnx", help="the network for onnxruntime")
    add("--tflite", type=Path, default=MODELS / "digits.tflite", help="the network for LiteRT")
    add("--starts", type=int, default=30, help="of each engine under each load; the thesis has 30")
    add("--frames", type=int, default=300, help="of each start")
    add("--fps", type=float, default=100.0, help="frames that arrive per second")
    add("--out", type=Path, default=Path("thesis.json"), help="raw values; the page is beside it")
    args = parser.parse_args()
    options = BenchOptions(
        starts=args.starts, frames=args.frames, fps=args.fps, levels=(0.5,), window=1
    )
    with TemporaryDirectory() as folder:
        models = {"onnxruntime": args.onnx, "litert": args.tflite}
        results = measure(models, Path(folder), options)
    write_bench(results, args.out)
    args.out.with_suffix(".html").write_text(page_html(bench_page(results)), encoding="utf-8")
    console.print(machine())
    show(console, *bench_parts(results))


if __name__ == "__main__":
    main()
