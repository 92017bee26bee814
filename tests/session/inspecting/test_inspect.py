"""What ``inspect`` finds, as records, as JSON and as tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from command_line import rankslice, succeed
from jobs import FIGURE_2_RANKS, build_folder, figure_2, routed_figure, write_mapping
from line_graphs import opened
from needed import NEEDS_FIRST_CORES
from onnx_models import LIGHT_MODELS, save
from plans import FIGURE_2, planned
from rich.console import Console

from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import bytes_text
from rankslice.frontend.costs.costs import layer_costs
from rankslice.frontend.costs.cuts import cuts
from rankslice.frontend.costs.liveness import peak_memory
from rankslice.session.building.build_options import BuildOptions
from rankslice.session.inspecting.inspect import Inspection, Totals, inspect_model
from rankslice.session.inspecting.rank_costs import rank_costs
from rankslice.views.inspection import inspection_parts
from rankslice.views.inspection_json import inspection_to_json
from rankslice.views.model_picture import picture_of
from rankslice.views.terminal import show

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 3] z) <float[3] w = {1.0, 2.0, 3.0}>
    { [add] y = Add(x, w)
      [mul] z = Mul(y, w) }"""
SQUEEZENET = next(path for path in LIGHT_MODELS if "squeezenet" in path.name)
TITLES = "ranks", "ranks in a surge"
HOSTILE = '["[red]a\\u001b[2Jb"]'


def mapped(folder: Path) -> Inspection:
    return inspect_model(folder / "model.onnx", mapping=folder / "mapping.json")


def shown(
    inspection: Inspection,
    width: int,
    *,
    terminal: bool,
    cuts: int = 9,
    summary: bool | None = None,
) -> str:
    console = Console(width=width, force_terminal=terminal, color_system=None, highlight=False)
    with console.capture() as captured:
        show(console, *inspection_parts(inspection, console, cuts, summary=summary), max_cell=None)
    return captured.get()


def long_chain(folder: Path, count: int) -> Inspection:
    names = ["x", *(f"t{n}" for n in range(count - 1)), "y"]
    lines = [f"[layer{n}] {names[n + 1]} = Relu({names[n]})" for n in range(count)]
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4] x) => (float[1, 4] y) {'
    return inspect_model(save(folder, "\n".join([head, *lines, "}"])))


def test_a_summary_has_the_totals_and_the_cuts_and_no_layers(tmp_path):
    inspection = long_chain(tmp_path, 40)
    text = shown(inspection, 100, terminal=False, summary=True)
    assert ["layer", "operator"] != text.split()[1:3]
    assert text.index("40 layers, 0 MACs") < text.index("cuts, narrowest first")
    assert "layer13" not in text
    assert text.count("\n") < 25


@pytest.mark.parametrize(
    ("count", "terminal", "summary", "listed"),
    [
        (40, True, None, True),
        (140, True, None, False),
        (140, False, None, True),
        (140, True, False, True),
        (40, True, True, False),
    ],
)
def test_a_large_model_is_summed_up_on_a_terminal_unless_all_is_asked_for(
    count: int, terminal: bool, summary: bool | None, listed: bool, tmp_path: Path
):
    text = shown(long_chain(tmp_path, count), 120, terminal=terminal, summary=summary)
    assert listed == (" operator " in text)
    assert ("--no-summary lists the 140 layers" in text) == (count == 140 and not listed)


def test_totals_count_a_shared_weight_once(tmp_path):
    totals = inspect_model(save(tmp_path, TEXT)).totals
    assert (3, 12) == (totals.parameters, totals.weight_bytes)


def test_the_json_tells_layers_shapes_and_totals(tmp_path):
    record = inspection_to_json(inspect_model(save(tmp_path, TEXT)))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert ("rankslice-inspection", 1) == (record["format"], record["version"])
    x = {"name": "x", "dtype": "float32", "shape": [2, 3], "symbols": [], "bytes": 24}
    assert [x] == record["inputs"]
    assert ["add", "mul"] == [layer["name"] for layer in record["layers"]]
    assert {
        "layers": 2,
        "running_layers": 2,
        "macs": 0,
        "uncounted_layers": [],
        "parameters": 3,
        "moments": 0,
        "weight_bytes": 12,
        "constant_bytes": 0,
    } == record["totals"]
    assert {"ai.onnx": 17} == record["model"]["opsets"]
    assert None is record["plan"]


def open_figure() -> Inspection:
    """Return AutoDiCE's example with two tensors whose second size changes."""
    graph = opened(FIGURE_2, "Buff1", size="n<m>")
    graph = opened(graph, "output", size="?")
    costs, plan = layer_costs(graph), planned(graph, FIGURE_2_RANKS)
    return Inspection(
        graph,
        *(None, (), costs, Totals(0, (), 0, 0, 0, 0), peak_memory(graph), cuts(graph, costs)),
        *(plan, rank_costs(graph, costs, plan)),
    )


def test_sizes_that_change_are_shown_with_their_bounds():
    lines = shown(open_figure(), 200, terminal=False).splitlines()
    rows = {line.split()[1]: line for line in lines if len(line.split()) > 1}
    assert "1 x n<m><=4" in rows["MaxPool1"]
    assert rows["MaxPool1"].rstrip().endswith("<=16 B")
    assert "1x4" in rows["Add1"]
    assert "output: output 1 x <=4 float32" in lines
    assert "sizes that change from frame to frame count with the largest ones, marked <=" in lines
    assert "32 B <=48 B 320 B" == " ".join(rows["board_cpu0"].split()[-6:])
    assert "&lt;=16 B from rank 0 to rank 1: Buff1" in picture_of(open_figure())
    assert "<=16 B 16 B 48 B" == " ".join(rows["board_cpu1"].split()[-6:])


def test_the_json_names_sizes_that_change():
    record = inspection_to_json(open_figure())
    made = {tensor["name"]: tensor for row in record["layers"] for tensor in row["outputs"]}
    assert [["", "n<m>"], [], ["", "?"]] == [
        made[name]["symbols"] for name in ("Buff1", "Buff4", "output")
    ]
    is_open = {channel["tensor"]: channel["open"] for channel in record["plan"]["channels"]}
    assert {"Buff1": True, "Buff2": False} == {name: is_open[name] for name in ("Buff1", "Buff2")}


def test_the_json_has_every_cut():
    record = inspection_to_json(inspect_model(SQUEEZENET))
    assert record["totals"]["running_layers"] - 1 == len(record["cuts"])
    (cut,) = (cut for cut in record["cuts"] if cut["after"] == "n40")
    assert (32_448, [{"name": "r40", "bytes": 32_448}]) == (cut["bytes"], cut["tensors"])
    assert 0.521 == round(cut["share_before"], 3)


def test_the_json_of_odd_settings_is_json(tmp_path):
    model = onnx.parser.parse_model(TEXT)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("inf", [float("inf"), 1.0]))
    onnx.save(model, tmp_path / "m.onnx")
    record = inspection_to_json(inspect_model(tmp_path / "m.onnx"))
    assert {"inf": ["inf", 1.0]} == record["layers"][0]["attributes"]
    assert json.dumps(record, allow_nan=False)


def test_a_mapping_gives_what_each_rank_does(figure):
    inspection = mapped(figure)
    assert [0, 4 * 4 * 4 * 4 * 9] == [inspection.ranks[rank].macs for rank in (0, 2)]
    assert [0, 0, 1] == [rank.share for rank in inspection.ranks]
    record = inspection_to_json(inspection)["plan"]
    size = 4 * 4 * 4 * 4
    assert [(2 * size, 3 * size), (size, size), (2 * size, size)] == [
        (rank["received_bytes"], rank["sent_bytes"]) for rank in record["ranks"]
    ]
    assert 5 == len(record["channels"])


def test_layers_tell_where_they_run(figure):
    layers = inspection_to_json(mapped(figure))["layers"]
    places = {layer["name"]: layer["places"] for layer in layers}
    assert [{"rank": 0, "segment": 1}] == places["Add1"]
    assert [{"rank": 1, "segment": 0}] == places["FC1"]


def test_a_build_folder_is_inspected_with_its_plan(tmp_path):
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    found = inspect_model(folder)
    assert found.plan is not None
    assert mapped(tmp_path).plan == replace(found.plan, model=mapped(tmp_path).plan.model)
    assert ["x"] == [tensor.name for tensor in found.graph.inputs]


def test_each_route_of_a_build_folder_is_inspected(tmp_path, figure):
    found = inspect_model(routed_figure(tmp_path))
    whole, alone = found.ranks, mapped(figure).ranks
    assert [(1, 5), (0, 0), (0, 0)] == [(each.segments, each.layers) for each in whole]
    assert [0.0, 0.0] == [each.share for each in whole[1:]]
    # What a rank has on a route is what it has in a job that has no other one.
    assert alone[1] == found.surge[1]
    write_mapping(tmp_path / "mapping.json", dict.fromkeys(FIGURE_2_RANKS, 0))
    assert mapped(tmp_path).ranks == whole[:1]


def test_the_json_tells_both_routes(tmp_path):
    record = inspection_to_json(inspect_model(routed_figure(tmp_path)))
    plan, surge = record["plan"], record["plan"]["surge"]
    assert ([], 6) == (plan["channels"], len(surge["channels"]))
    # Four segments one after the other, and a hop after each.
    assert (1 + 1, 2 * 4 + 1) == (plan["window"], surge["window"])
    assert [1, 0, 0] == [rank["segments"] for rank in plan["ranks"]]
    assert [2, 1, 2] == [rank["segments"] for rank in surge["ranks"]]
    (added,) = (layer for layer in record["layers"] if layer["name"] == "Add1")
    assert [{"rank": 0, "segment": 0}] == added["places"]
    # Segments for a surge follow those of the usual route.
    assert [{"rank": 0, "segment": 2}] == added["surge_places"]


def test_the_json_of_one_route_has_no_other(figure):
    record = inspection_to_json(mapped(figure))
    assert record["plan"]["surge"] is None
    assert {None} == {layer["surge_places"] for layer in record["layers"]}


def test_the_tables_show_both_routes_and_the_memory_of_both(tmp_path):
    found = inspect_model(routed_figure(tmp_path))
    lines = shown(found, 200, terminal=False).splitlines()
    usual, surge = (next(n for n, s in enumerate(lines) if s.rstrip() == t) for t in TITLES)
    assert ["0"] == [line.split()[0] for line in lines[usual:surge] if line[:5].strip().isdigit()]
    assert ["0", "1", "2"] == [
        line.split()[0] for line in lines[surge:] if line[:5].strip().isdigit()
    ]
    (add,) = (line.split() for line in lines if " Add1  " in line and "0.2" in line)
    assert ["0.0", "0.2", "Add1"] == add[:3]
    assert "weights and slots of both routes: rank 0 " in lines[-1]
    both = [cost.weight_bytes + cost.slot_bytes for cost in (found.ranks[0], found.surge[0])]
    assert f"rank 0 {bytes_text(sum(both))}, " in lines[-1]


@NEEDS_FIRST_CORES
def test_a_build_folder_tells_the_sizes_of_open_inputs(tmp_path):
    text = TEXT.replace("float[2, 3] x", "float[N, 3] x").replace("float[2, 3] z", "float[N, 3] z")
    model = save(tmp_path, text)
    (tmp_path / "mapping.json").write_text('{"local_cpu0": ["add", "mul"]}')
    succeed(
        *("build", model, "--mapping", tmp_path / "mapping.json", "--shape", "x=2,3"),
        *("--share-cores", "--out", tmp_path / "out"),
    )
    assert (2, 3) == inspect_model(tmp_path / "out").graph.inputs[0].shape


def test_a_build_folder_whose_model_has_changed_is_refused(tmp_path):
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    save(tmp_path, TEXT)
    with pytest.raises(RankSliceError, match="has changed since it was sliced; build again"):
        inspect_model(folder)


def test_a_build_folder_without_its_model_is_refused(tmp_path):
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(RankSliceError, match=r"does not lead to model\.onnx; build again"):
        inspect_model(folder)


def test_a_second_mapping_gives_what_a_build_with_both_has(tmp_path):
    built = inspect_model(routed_figure(tmp_path))
    normal, surge = tmp_path / "normal.json", tmp_path / "surge.json"
    found = inspect_model(
        tmp_path / "model.onnx", mapping=normal, options=BuildOptions(surge=surge)
    )
    assert inspection_to_json(built) == inspection_to_json(found)
    done = succeed(
        *("inspect", tmp_path / "model.onnx", "--mapping", normal, "--surge", surge),
    )
    assert set(TITLES) <= {line.rstrip() for line in done.out.splitlines()}


def test_accelerators_without_an_engine_can_be_inspected(tmp_path):
    """The mapping of AutoDiCE's figure uses a GPU."""
    onnx.save(figure_2(), tmp_path / "model.onnx")
    examples = Path(__file__).parents[3]
    found = inspect_model(
        tmp_path / "model.onnx",
        mapping=examples / "mappings" / "autodice-figure2.json",
        platform=examples / "platforms" / "autodice-figure2.txt",
    )
    assert ["edge01_arm123", "edge01_gpu", "edge04_arm45"] == [r.key for r in found.plan.ranks]


def test_the_table_shows_names_as_text_and_never_as_commands(tmp_path):
    path = save(tmp_path, TEXT.replace("[add]", HOSTILE))
    output = shown(inspect_model(path), 100, terminal=False)
    assert "[red]a" in output
    assert "\x1b[2J" not in output
    assert "2 layers, 0 MACs, 3 parameters, 12 B of weights" in output


def test_on_a_terminal_nothing_is_wider_than_the_terminal_but_sentences():
    inspection = inspect_model(SQUEEZENET)
    for width in (80, 160):
        tables = [
            line
            for line in shown(inspection, width, terminal=True, summary=False).splitlines()
            if line
        ]
        rows = [line for line in tables if line.startswith(" ")]
        assert len(rows) > 70
        assert width >= max(map(len, rows))


def test_in_a_pipe_names_stay_whole(tmp_path):
    name = "a_long_name/" * 40
    path = save(tmp_path, TEXT.replace("[add]", f'["{name}"]'))
    assert 2 <= shown(inspect_model(path), 80, terminal=False).count(name)


def test_the_tables_tell_what_is_needed_to_choose_a_cut():
    output = shown(inspect_model(SQUEEZENET), 80, terminal=True)
    for part in (
        "349 M MACs",
        "cuts, narrowest first",
        "32.4 kB",
        "52.1 %",
        "activations: at most 6.31 MB at once, while n1 runs; the largest is r0, 3.15 MB",
    ):
        assert part in output


def test_as_many_cuts_are_shown_as_wanted():
    inspection = inspect_model(SQUEEZENET)
    assert "cuts, narrowest first" not in shown(inspection, 80, terminal=True, cuts=0)
    assert "65 of 65 cuts" in shown(inspection, 80, terminal=True, cuts=1000)
    assert "1 of 65 cuts" in shown(inspection, 80, terminal=True, cuts=1)


def test_a_model_without_products_is_measured_in_layers(tmp_path):
    output = shown(inspect_model(save(tmp_path, TEXT)), 100, terminal=False)
    assert "layers before" in output
    assert "50.0 %" in output


def test_the_table_of_a_mapping_has_a_row_per_rank(figure):
    output = shown(mapped(figure), 120, terminal=True)
    for part in ("rank", "2.1", "100.0 %", "256 B", "receives", "2.30 k"):
        assert part in output


def test_the_table_tells_the_frames_of_ranks_that_take_turns(figure):
    assert "frames" not in shown(mapped(figure), 200, terminal=False)
    write_mapping(figure / "mapping.json", FIGURE_2_RANKS, {FIGURE_2_RANKS["FC1"]: (3, 1)})
    assert " 0, 1, 3 of 4 " in shown(mapped(figure), 200, terminal=False)


def test_what_is_not_known_is_said(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> g (float[4] x) => (float[n] z)
        { [odd] i = Cast <to = 7> (x) [open] y = Expand(x, i) [strange] z = mine.Mystery(y) }"""
    output = shown(inspect_model(save(tmp_path, text)), 100, terminal=False)
    assert "the MACs of 1 layer (strange) are not known" in output
    assert "the size of 2 tensors (y, z) is not known" in output


def test_constants_and_idle_layers_are_counted(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] z)
        <int64[1] s = {4}>
        { [c] k = ConstantOfShape(s) [a] z = Add(x, k) [idle] n = Neg(x) }"""
    output = shown(inspect_model(save(tmp_path, text)), 100, terminal=False)
    assert "3 layers (1 constant and 1 not needed for any output)" in output
    assert "constant layers besides weights make 16 B" in output


def test_the_command_writes_a_picture_and_json_beside_its_tables(figure):
    done = rankslice(
        *("inspect", figure / "model.onnx", "--mapping", figure / "mapping.json"),
        *("--svg", figure / "m.svg", "--json", figure / "m.json"),
    )
    assert (0, "") == (done.code, done.err)
    assert "ranks" in done.out
    assert (figure / "m.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert 3 == len(json.loads((figure / "m.json").read_text())["plan"]["ranks"])


def test_the_command_gives_the_picture_alone_on_stdout(figure):
    done = rankslice("inspect", figure / "model.onnx", "--svg", "-")
    assert (0, "") == (done.code, done.err)
    assert done.out.startswith("<svg ")
    assert done.out.endswith("</svg>\n")


def test_a_build_folder_shows_which_sizes_were_fixed(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, seq, 2] x) => (float[batch, seq, 2] z) { [a] y = Neg(x) [b] z = Abs(y) }"""
    model = save(tmp_path, text)
    write_mapping(tmp_path / "mapping.json", {"a": 0, "b": 1})
    sizes = ("--shape", "batch=4", "--at-most", "seq=16")
    given = ("--mapping", tmp_path / "mapping.json", "--share-cores", *sizes)
    succeed("build", model, *given, "--out", tmp_path / "out")
    loaded = inspect_model(tmp_path / "out").plan
    assert loaded is not None
    (found,) = json.loads(rankslice("inspect", tmp_path / "out", "--json", "-").out)["inputs"]
    assert ([4, 16, 2], ["", "seq", ""]) == (found["shape"], found["symbols"])
