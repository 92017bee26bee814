"""Profiles read back as they were written, and strictly."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Tensor
from rankslice.framework.profile import (
    Core,
    MeasuredBoard,
    Profile,
    ProfiledKind,
    ProfiledModel,
    SeenTensor,
    Span,
    profile_from_json,
    profile_to_json,
)
from rankslice.framework.specs.schemas import schema_texts

BOARD = MeasuredBoard(
    name="edge01",
    host="pi",
    machine="aarch64",
    processor="Raspberry Pi 5",
    python="3.11.2",
    memory_bytes=8 << 30,
    cores=(Core(0, "ondemand", 2_400_000), Core(1, None, None)),
    sensor=None,
    idle_mw=None,
)
KIND = ProfiledKind(
    key="edge01_cpu0",
    keys=("edge01_cpu0", "edge02_cpu0"),
    accelerator="cpu",
    threads=1,
    engine="onnxruntime",
    engine_version="onnxruntime 1.31.0",
    options=(("a", "b"),),
    environment=(),
    allow_fallback=False,
    neighbours=("edge01_cpu1",),
    rank_bytes=60_000_000,
    board=BOARD,
    spans=(
        Span(0, 0, (1_000, 3_000, 2_000), (3,), 5, None, None, False),
        Span(0, 1, (), (), None, None, "cannot run a Gelu", True),
    ),
)
PROFILE = Profile(
    ProfiledModel("m.onnx", "ab", (Tensor("x", "float32", (1, 2)),), ('conv "1"', "\0é")), (KIND,)
)


BOXES = SeenTensor("boxes", "float32", ((3, 4), (0, 4)))
SCORES = SeenTensor("scores", "float32", ((3,), (0,)))


def changed(*path_and_value: Any) -> str:
    """Return the text of the profile with the value at a path replaced."""
    *path, last, value = path_and_value
    record = inner = json.loads(profile_to_json(PROFILE))
    for step in path:
        inner = inner[step]
    inner[last] = value
    return json.dumps(record)


def mistakes(text: str) -> list[str]:
    with pytest.raises(RankSliceError) as raised:
        profile_from_json(text)
    return [str(mistake) for mistake in raised.value.mistakes]


def test_sizes_of_inputs_are_compared_with_those_that_were_measured() -> None:
    open_input = Tensor("x", "float32", (4, 24), ("batch", "seq"))
    model = replace(PROFILE.model, inputs=(open_input,))
    assert "" == model.other_sizes([open_input])
    other = "was measured with input 'x' of at most [4, 24], not [4, 24]"
    assert other == model.other_sizes([replace(open_input, symbols=())])


def test_a_profile_reads_back_as_it_was_written() -> None:
    assert PROFILE == profile_from_json(profile_to_json(PROFILE))
    nothing = replace(PROFILE, kinds=())
    assert nothing == profile_from_json(profile_to_json(nothing))


def test_sizes_that_frames_showed_read_back_with_a_line_for_each_tensor() -> None:
    shown = replace(PROFILE, seen=(BOXES, SCORES))
    assert shown == profile_from_json(profile_to_json(shown))
    assert 2 == sum(line.startswith('{"name"') for line in profile_to_json(shown).splitlines())
    assert ((48, 0), (12, 0)) == (BOXES.nbytes, SCORES.nbytes)


@pytest.mark.parametrize(
    ("seen", "mistake"),
    [
        ((BOXES, BOXES), "seen: two tensors are called 'boxes'"),
        ((replace(BOXES, shapes=()),), "seen: not all tensors have a shape for each frame"),
        (
            (BOXES, replace(SCORES, shapes=((3,),))),
            "seen: not all tensors have a shape for each frame",
        ),
        ((replace(SCORES, dtype="str"),), "seen[0]: its values have no size in bytes"),
        ((replace(SCORES, shapes=((-3,),)),), "seen[0]: its values have no size in bytes"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(
    seen: tuple[SeenTensor, ...], mistake: str
) -> None:
    assert [f"profile.json: {mistake}"] == mistakes(profile_to_json(replace(PROFILE, seen=seen)))


def test_each_span_has_a_line() -> None:
    assert 2 == sum(line.startswith('{"first"') for line in profile_to_json(PROFILE).splitlines())


def test_a_profile_fits_its_schema() -> None:
    validator = Draft202012Validator(json.loads(schema_texts()["profile.schema.json"]))
    assert [] == list(validator.iter_errors(json.loads(profile_to_json(PROFILE))))
    assert [] != list(validator.iter_errors(json.loads(changed("kinds", 0, "threads", "1"))))


def test_the_time_of_a_span_is_the_median_of_what_its_moments_showed() -> None:
    assert 2e-6 == KIND.spans[0].seconds
    assert KIND.spans[1].seconds is None
    often = replace(KIND.spans[0], samples_ns=(1, 2, 9, 4, 4, 4, 5), moments=(3, 3, 1))
    assert ((2e-9, 4e-9, 5e-9), 4e-9) == (often.moments_s, often.seconds)


def test_a_kind_is_found_by_each_of_its_keys() -> None:
    assert KIND is PROFILE.kind_of("edge02_cpu0")
    assert PROFILE.kind_of("edge03_cpu0") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "rankslice-plan"}', "[" * 9999])
def test_a_text_that_is_no_profile_is_refused_as_such(text: str) -> None:
    assert "profile.json: this is not a profile" in mistakes(text)[0]


@pytest.mark.parametrize("version", [3, 5])
def test_a_profile_of_another_version_asks_to_be_measured_anew(version: int) -> None:
    expected = [
        f"profile.json: this is a profile of version {version}, not 4;"
        " made by another version of RankSlice: measure again"
    ]
    assert expected == mistakes(changed("version", version))


@pytest.mark.parametrize(
    ("path_and_value", "mistake"),
    [
        (("kinds", 0, "threads", 1.5), "kinds[0].threads: found 1.5; expected a whole number"),
        (("model", "layers", ["a", "a"]), "model.layers: two layers are called 'a'"),
        (("kinds", 0, "key", "x"), "kinds[0].keys: 'x' is not among them"),
        (
            ("kinds", 0, "spans", 0, "last", 2),
            "kinds[0].spans[0]: layers 0 to 2 are not layers of the model",
        ),
        (("kinds", 0, "spans", 0, "last", 1), "kinds[0].spans: layers 0 to 1 are there twice"),
        (
            ("kinds", 0, "spans", 0, "samples_ns", []),
            "kinds[0].spans[0]: it has neither times nor a problem",
        ),
        (
            ("kinds", 0, "spans", 0, "moments", [2]),
            "kinds[0].spans[0]: its moments do not have as many samples as there are;"
            " measure again",
        ),
        (
            ("kinds", 0, "spans", 0, "samples_ns", [5, 0, 6]),
            "kinds[0].spans[0]: a time, memory or energy is below zero, or no time at all;"
            " measure again",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path_and_value: Any, mistake: str) -> None:
    assert f"profile.json: {mistake}" in mistakes(changed(*path_and_value))


def test_a_key_in_two_kinds_is_refused() -> None:
    text = profile_to_json(replace(PROFILE, kinds=(KIND, replace(KIND, key="edge02_cpu0"))))
    assert ["'edge01_cpu0'", "'edge02_cpu0'"] == [
        mistake.split("key ")[1].split(" is")[0] for mistake in mistakes(text)
    ]


def test_all_mistakes_are_told_at_once() -> None:
    record = json.loads(profile_to_json(PROFILE))
    record["kinds"][0]["spans"][0] |= {"first": "0", "more": 1}
    del record["model"]["name"]
    assert 3 == len(mistakes(json.dumps(record)))
