"""The picture of a model: what stands in it, and that it is sound whatever the model says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from hypothesis import given, strategies as st
from jobs import FIGURE_2_RANKS, routed_figure, write_mapping
from needed import NEEDS_FIRST_CORES
from onnx_models import LIGHT_MODELS, save

from rankslice.session.inspecting.inspect import inspect_model
from rankslice.views.lanes import assign_lanes
from rankslice.views.model_picture import picture_of

SVG = "{http://www.w3.org/2000/svg}"
NAMES = (
    "<script>alert('x')</script>&amp;",
    "two\nlines\t",
    "right\u202eto\u200fleft",
    "L" * 10_000,
    "漢字" * 50,
    "]]>\x1b[31m",
    "{{ 7 * 7 }}{% raw %}",
    "\ufffe\U000e0001",
)


def picture(model: Path, mapping: Path | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(picture_of(inspect_model(model, mapping=mapping)))


def texts(drawn: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in drawn.iter(f"{SVG}text")]


def tooltips(drawn: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in drawn.iter(f"{SVG}title")]


def lines(drawn: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [path for path in drawn.iter(f"{SVG}path") if path.get("class") == f"line {kind}"]


def hostile_model(folder: Path) -> Path:
    tensors = ["x", *(f"{name}!" for name in NAMES[:-1]), "y"]
    nodes = [
        onnx.helper.make_node("Relu", [tensors[index]], [tensors[index + 1]], name=name)
        for index, name in enumerate(NAMES)
    ]
    ends = [
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])] for name in "xy"
    ]
    graph = onnx.helper.make_graph(nodes, "g", *ends)
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = folder / "hostile.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_every_layer_that_runs_has_a_row_with_what_it_costs(figure):
    drawn = picture(figure / "model.onnx")
    assert {"x", "MaxPool1", "Conv1", "FC1", "Add1", "Relu1", "y"} <= set(texts(drawn))
    assert "2.30 k" in texts(drawn)
    tooltip = next(text for text in tooltips(drawn) if text.startswith("Conv1: Conv"))
    assert "reads pooled 1x4x4x4 float32" in tooltip
    assert "2,304 MACs, 144 parameters" in tooltip


def test_constant_layers_are_not_drawn(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] z)
        <int64[1] s = {4}> { [c] k = ConstantOfShape(s) [a] z = Add(x, k) }"""
    drawn = picture(save(tmp_path, text))
    assert "c" not in texts(drawn)
    assert any("1 that no frame needs" in text for text in texts(drawn))


def test_every_cut_has_its_bar_and_what_would_be_sent(figure):
    drawn = picture(figure / "model.onnx")
    shown = [text for text in tooltips(drawn) if text.startswith("a cut here")]
    assert 4 == len(shown)
    assert "a cut here would send 512 B per frame:\n  pooled, 256 B\n  convolved, 256 B" in shown[1]


def test_without_a_plan_nothing_crosses(figure):
    assert [] == lines(picture(figure / "model.onnx"), "cross")


def test_ranks_have_a_legend_and_their_own_colours(figure):
    drawn = picture(figure / "model.onnx", figure / "mapping.json")
    keys = json.loads((figure / "mapping.json").read_text())
    assert set(keys) <= set(texts(drawn))
    circles = [c for c in drawn.iter(f"{SVG}circle") if c.get("stroke")]
    colours = [circle.get("stroke") for circle in circles]  # x, five layers, y
    pool, convolution, product, add, relu = colours[1:6]
    assert (3, pool, convolution) == (len({pool, convolution, product}), add, relu)


def test_what_crosses_ranks_is_drawn_apart_and_labelled_with_its_size(figure):
    drawn = picture(figure / "model.onnx", figure / "mapping.json")
    labels = [text for text in texts(drawn) if " from rank " in text]
    assert sorted(
        [
            "256 B from rank 0 to rank 2: pooled",
            "256 B from rank 0 to rank 1: pooled",
            "256 B from rank 2 to rank 0: convolved",
            "256 B from rank 1 to rank 0: fc",
            "256 B from rank 0 to rank 2: added",
        ]
    ) == sorted(labels)
    assert lines(drawn, "cross")
    assert any("rank 1 to rank 0" in text for text in tooltips(drawn))


def test_segments_are_named_where_they_start(figure):
    drawn = picture(figure / "model.onnx", figure / "mapping.json")
    assert {"0.0", "0.1", "1.0", "2.0", "2.1"} <= set(texts(drawn))


def test_a_second_route_is_drawn_below_the_first(tmp_path, figure):
    alone = picture(figure / "model.onnx", figure / "mapping.json")
    drawn = picture(routed_figure(tmp_path))
    assert "model.onnx, in a surge" in texts(drawn)
    (below,) = (group for group in drawn.iter(f"{SVG}g") if group.get("transform"))
    own_texts = [text for text in texts(below) if " from rank " in text]
    # Frames enter and leave at rank 0.
    assert 6 == len(own_texts)
    assert {"0.1", "0.2", "1.0", "2.0", "2.1"} <= set(texts(below))
    assert "0.0" in texts(drawn)
    assert "0.0" not in texts(below)
    begin = int(below.get("transform").split()[1].rstrip(")"))
    assert int(drawn.get("height")) - begin >= int(alone.get("height"))


def test_all_ranks_that_take_turns_are_drawn_with_their_frames(figure):
    weights = {FIGURE_2_RANKS["FC1"]: (3, 1)}
    write_mapping(figure / "mapping.json", FIGURE_2_RANKS, weights)
    drawn = picture(figure / "model.onnx", figure / "mapping.json")
    assert {"frames", "all", "0, 1, 3 of 4", "2 of 4", "1.0|2.0"} <= set(texts(drawn))
    tooltip = next(text for text in tooltips(drawn) if text.startswith("FC1: "))
    assert "\nrank 1, segment 0, frames 0, 1, 3 of 4\nrank 2, segment 0, frames 2 of 4\n" in tooltip
    labels = {text for text in texts(drawn) if " from rank " in text}
    assert {
        "256 B from rank 0 to rank 1, 3 of 4 frames: pooled",
        "256 B from rank 0 to rank 2, 1 of 4 frames: pooled",
        "256 B from rank 0 to rank 3: pooled",
    } <= labels
    tints = [rect for rect in drawn.iter(f"{SVG}rect") if rect.get("class") == "tint"]
    first, second = (tint for tint in tints if tint.get("width") != drawn.get("width"))
    assert first.get("width") == second.get("x")
    assert int(drawn.get("width")) == int(second.get("x")) + int(second.get("width"))


def test_frames_are_left_out_where_no_ranks_take_turns(figure):
    assert "frames" not in texts(picture(figure / "model.onnx", figure / "mapping.json"))


@NEEDS_FIRST_CORES
def test_any_name_is_drawn_on_one_line_as_text(tmp_path):
    path = hostile_model(tmp_path)
    mapping = tmp_path / "m.json"
    mapping.write_text(json.dumps({f"local_cpu0.{n + 2}": [x] for n, x in enumerate(NAMES)}))
    drawn = picture(path, mapping)
    for text in texts(drawn):
        assert text.isprintable()
        assert len(text) < 150
    assert all(len(text) < 2000 for text in tooltips(drawn))
    assert NAMES[0] in texts(drawn)
    assert [] == list(drawn.iter(f"{SVG}script"))
    assert "{{ 7 * 7 }}{% raw %}" in texts(drawn)


def test_the_same_inspection_gives_the_same_bytes(figure):
    first, second = (
        picture_of(inspect_model(figure / "model.onnx", mapping=figure / "mapping.json"))
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("path", LIGHT_MODELS, ids=lambda path: path.stem)
def test_a_picture_of_a_zoo_network_stays_within_its_frame(path):
    drawn = picture(path)
    width, height = (int(drawn.get(side)) for side in ("width", "height"))
    assert width < 1500
    for circle in drawn.iter(f"{SVG}circle"):
        assert 0 < int(circle.get("cx")) < width
        assert 0 < int(circle.get("cy")) < height
    numbers = re.findall(r"V(\d+)", " ".join(p.get("d") for p in drawn.iter(f"{SVG}path")))
    assert max(map(int, numbers)) < height


@NEEDS_FIRST_CORES
def test_twenty_ranks_have_twenty_colours(tmp_path):
    chain = "".join(f"[l{n}] t{n + 1} = Relu(t{n}) " for n in range(20))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[4] t0) => (float[4] t20) {{ {chain} }}"""
    mapping = tmp_path / "m.json"
    mapping.write_text(json.dumps({f"local_cpu0.{n + 2}": [f"l{n}"] for n in range(20)}))
    drawn = picture(save(tmp_path, text), mapping)
    swatches = [r.get("fill") for r in drawn.iter(f"{SVG}rect") if r.get("rx") == "3"]
    assert 20 == len(set(swatches)) == len(swatches)


Row = tuple[list[str], list[str]]
"""The tensors that it reads, and those that it makes."""


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made: list[str] = []
    drawn = []
    for index in range(draw(st.integers(1, 15))):
        reads = draw(st.sets(st.sampled_from(made), max_size=4)) if made else set()
        makes = [f"{index}.{n}" for n in range(draw(st.integers(0, 3)))]
        drawn.append((sorted(reads), makes))
        made += makes
    return drawn


@given(rows())
def test_no_two_lines_share_a_lane_at_the_same_height(graph):
    lanes = assign_lanes(graph)
    made = {name: index for index, (_, makes) in enumerate(graph) for name in makes}
    last = {name: index for index, (reads, _) in enumerate(graph) for name in reads}
    assert set(last) == set(lanes.tensors)
    for height in range(len(graph)):
        # A line passes the row if it began above and ends below.
        passing = [n for n in last if made[n] < height < last[n]]
        taken = [lanes.tensors[name] for name in passing]
        assert len(taken) == len(set(taken))
        assert lanes.rows[height] not in taken
    assert max((*lanes.rows, *lanes.tensors.values())) < lanes.count


def test_a_chain_is_a_straight_line():
    graph = [([], ["a"]), (["a"], ["b"]), (["b"], [])]
    assert (0, 0, 0) == assign_lanes(graph).rows


def test_a_branch_gets_a_lane_of_its_own_and_gives_it_back():
    graph = [
        ([], ["a"]),
        (["a"], ["b"]),
        (["a", "b"], ["c"]),
        (["c"], ["d"]),
        (["c", "d"], []),
    ]
    assert ((0, 1, 0, 1, 0), 2) == (assign_lanes(graph).rows, assign_lanes(graph).count)
