"""Draw the view of ``run --live`` anew, with values made up: ``python docs/generate_live.py``.

A test fails when the picture does not show what the command would.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console

from rankslice.backend.runtime.figures.sampling import Sample
from rankslice.session.building.build import build
from rankslice.views.live import LiveState, live_view

PICTURE = Path(__file__).parent / "images" / "live.svg"
_MODEL = Path(__file__).parents[1] / "models" / "digits.onnx"
_PLATFORM = "boards: {edge01: {host: 192.0.2.1, cores: 8}, edge02: {host: 192.0.2.2, cores: 6}}"
_MAPPING = '{"edge01_cpu0-3": ["conv1..pool1"], "edge02_cpu0-5": ["conv3..softmax"]}'
_SAMPLES = {
    "edge01": {
        "temperature_c.cpu0-thermal": 83.1,
        "frequency_mhz.policy0": 1209.6,
        "frequency_mhz.policy7": 2112.0,
        "cooling_state.thermal-cpufreq-0": 2.0,
        "memory_available_mb": 5120.0,
        "rate_fps": 24.31,
        "latency_p50_ms": 81.2,
        "latency_p99_ms": 95.04,
        "frames_inside": 4.0,
        "frames_waiting": 0.25,
        "completed": 812.0,
        "frames_per_s.rank0": 24.3,
        "compute_share.rank0": 0.981,
        "wait_share.rank0": 0.012,
        "processor_share.rank0": 3.87,
        "memory_mb.rank0": 143.2,
    },
    "edge02": {
        "temperature_c.tj-thermal": 52.4,
        "frequency_mhz.policy0": 1728.0,
        "throttle_count.over_current": 0.0,
        "cooling_state.cpu-throttle-alert": 0.0,
        "memory_available_mb": 3310.0,
        "power_w": 6.43,
        "frames_per_s.rank1": 24.2,
        "compute_share.rank1": 0.614,
        "wait_share.rank1": 0.371,
        "processor_share.rank1": 2.45,
        "memory_mb.rank1": 121.9,
    },
}


def picture() -> str:
    """Return the picture: what a terminal of 110 columns shows, as SVG."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mapping.json").write_text(_MAPPING)
        (folder / "boards.yaml").write_text(_PLATFORM)
        specs = folder / "mapping.json", str(folder / "boards.yaml")
        plan = build(_MODEL, *specs, folder / "out").plan
    state = LiveState(plan, 1000)
    for board, values in _SAMPLES.items():
        state.take(board, Sample(0, values))
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    console.print(live_view(state))
    drawn = console.export_svg(title="rankslice run out --fps 25 --live", unique_id="live")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # fonts from elsewhere


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
