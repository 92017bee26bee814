"""The JSON Schemas: shipped as made, true to all examples, as strict as the readers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator
from plans import plans
from spec_strategies import FULL_PLATFORM, KEYS_OF_ENTRIES, PLATFORMS, VALUES

from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan, plan_from_json, plan_to_json
from rankslice.framework.specs.keys import parse_key, read_cores, split_turns
from rankslice.framework.specs.platform_yaml import parse_platform_yaml
from rankslice.framework.specs.schemas import schema_texts

ROOT = Path(__file__).parents[3]
VALIDATORS = {
    name.partition(".")[0]: Draft202012Validator(json.loads(text))
    for name, text in schema_texts().items()
}
MAPPING, PLAN, PLATFORM = (VALIDATORS[name] for name in ("mapping", "plan", "platform"))


def complaints(validator: Draft202012Validator, value: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@pytest.mark.parametrize("name", sorted(schema_texts()))
def test_the_shipped_schemas_are_those_of_the_code(name: str) -> None:
    shipped = (files("rankslice") / "templates" / name).read_text(encoding="utf-8")
    assert schema_texts()[name] == shipped


@pytest.mark.parametrize("name", VALIDATORS)
def test_each_schema_is_one_by_its_own_rules(name: str) -> None:
    Draft202012Validator.check_schema(VALIDATORS[name].schema)


def test_the_schemas_can_be_written_into_a_folder_of_ones_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rankslice.framework.specs.schemas", str(tmp_path / "new")]
    subprocess.run(command, check=True, capture_output=True)
    assert schema_texts() == {
        path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new").iterdir()
    }


MAPPINGS = {*(ROOT / "mappings").iterdir()} - {*(ROOT / "mappings").glob("*-horizontal.json")}


@pytest.mark.parametrize("path", sorted(MAPPINGS), ids=lambda path: path.name)
def test_every_shipped_mapping_fits_its_schema(path: Path) -> None:
    assert [] == complaints(MAPPING, json.loads(path.read_text()))


@pytest.mark.parametrize("path", sorted((ROOT / "platforms").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_platform_fits_its_schema(path: Path) -> None:
    assert [] == complaints(PLATFORM, yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "golden").glob("*/plan.json")))
def test_every_golden_plan_fits_its_schema(path: Path) -> None:
    assert [] == complaints(PLAN, json.loads(path.read_text()))


@given(plans())
def test_every_plan_fits_its_schema(plan: Plan) -> None:
    assert [] == complaints(PLAN, json.loads(plan_to_json(plan)))


def test_all_that_a_platform_can_have_fits_the_schema() -> None:
    assert 4 == len(parse_platform_yaml(FULL_PLATFORM, "platform.yaml").boards)
    assert [] == complaints(PLATFORM, yaml.safe_load(FULL_PLATFORM))


MAPPING_MISTAKES = {
    "an empty object": {},
    "a list": [],
    "a key without a board": {"_cpu0": ["a"]},
    "an unknown resource": {"edge01_tpu0": ["a"]},
    "a CPU without cores": {"edge01_cpu": ["a"]},
    "cores that are none": {"edge01_cpu0-": ["a"]},
    "a space": {"edge01_cpu0, 1": ["a"]},
    "a suffix that counts nothing": {"edge01_cpu0.1": ["a"]},
    "a host core on a CPU": {"edge01_cpu0@1": ["a"]},
    "a weight of nothing": {"edge01_gpu*0|edge01_cpu0": ["a"]},
    "a weight that is none": {"edge01_gpu*x|edge01_cpu0": ["a"]},
    "a weight without its number": {"edge01_gpu*": ["a"]},
    "a key of nothing among others": {"edge01_gpu||edge01_cpu0": ["a"]},
    "a space between keys": {"edge01_gpu | edge01_cpu0": ["a"]},
    "a string for a list": {"edge01_cpu0": "a"},
    "a number for a name": {"edge01_cpu0": [1]},
    "no layers": {"edge01_cpu0": []},
    "a part without its layers": {"edge01_cpu0": [{"by": "rows"}]},
    "a part of nothing": {"edge01_cpu0": [{"layers": [], "by": "rows"}]},
    "an unknown key of a part": {"edge01_cpu0": [{"layers": ["a"], "by": "rows", "shares": 1}]},
    "an unknown way to split": {"edge01_cpu0": [{"layers": ["a"], "by": "row"}]},
    "a share of nothing": {"edge01_cpu0": [{"layers": ["a"], "by": "rows", "share": 0}]},
}


@pytest.mark.parametrize("value", MAPPING_MISTAKES.values(), ids=MAPPING_MISTAKES.keys())
def test_the_schema_of_mappings_refuses(value: object) -> None:
    assert complaints(MAPPING, value)


PLATFORM_MISTAKES = {
    "an empty object": "{}",
    "no boards": "boards: {}",
    "boards in a list": "boards: [a]",
    "an unknown key": "boards: {a: {}}\nlink: {}",
    "an unknown key of a board": "boards: {a: {coers: 3}}",
    "a board's name with a slash": "boards: {a/b: {}}",
    "a board's name of 65 letters": f"boards: {{{'a' * 65}: {{}}}}",
    "a board that is text": "boards: {a: text}",
    "a host that is an option": "boards: {a: {host: -oProxyCommand=id}}",
    "an account that is an option": "boards: {a: {user: -root}}",
    "an engine that is a path": "boards: {a: {engine: ../x}}",
    "no cores": "boards: {a: {cores: 0}}",
    "cores that are none": "boards: {a: {cores: many}}",
    "an empty list of cores": "boards: {a: {cores: []}}",
    "memory that is none": "boards: {a: {memory_mb: 0}}",
    "negative watts": "boards: {a: {idle_w: -1}}",
    "an accelerator without an engine": "boards: {a: {gpu: {delegate: x.so}}}",
    "a delegate among the options": "boards: {a: {gpu: {engine: litert, options: {delegate: x}}}}",
    "options in a list": "boards: {a: {gpu: {engine: litert, options: [a]}}}",
    "a variable that decides what runs": (
        "boards: {a: {gpu: {engine: litert, environment: {LD_PRELOAD: x.so}}}}"
    ),
    "no bandwidth": "boards: {a: {}}\nlinks: {default: {latency_ms: 1}}",
    "a bandwidth of zero": "boards: {a: }\nlinks: {default: {bandwidth_mbps: 0, latency_ms: 1}}",
    "a link of one": (
        "boards: {a: }\nlinks: {pairs: [{between: [a], bandwidth_mbps: 1, latency_ms: 1}]}"
    ),
}


@pytest.mark.parametrize("text", PLATFORM_MISTAKES.values(), ids=PLATFORM_MISTAKES.keys())
def test_the_schema_of_platforms_refuses_what_the_reader_refuses(text: str) -> None:
    with pytest.raises(RankSliceError):
        parse_platform_yaml(text, "platform.yaml")
    assert complaints(PLATFORM, yaml.safe_load(text))


def plan_record() -> dict[str, Any]:
    text = (ROOT / "tests" / "golden" / "figure2" / "plan.json").read_text()
    record: dict[str, Any] = json.loads(text)
    return record


def reader_refuses(record: object) -> bool:
    try:
        plan_from_json(json.dumps(record))
    except RankSliceError:
        return True
    return False


@pytest.mark.parametrize("name", plan_record())
def test_the_schema_of_plans_wants_every_field(name: str) -> None:
    record = plan_record()
    del record[name]
    assert reader_refuses(record)
    assert complaints(PLAN, record)


@pytest.mark.parametrize("name", plan_record())
@pytest.mark.parametrize("value", [None, "text", -1, 1.5, [3], {"a": 1}], ids=str)
def test_the_schema_of_plans_wants_every_field_of_its_type(name: str, value: object) -> None:
    record = {**plan_record(), name: value}
    may_be_none = name == "surge_minimal" and value is None
    assert reader_refuses(record) is not may_be_none
    assert bool(complaints(PLAN, record)) is not may_be_none


def test_the_schema_of_plans_refuses_files_outside_of_the_build_folder() -> None:
    record = plan_record()
    record["job"]["ranks"][0]["runs"][0]["file"] = "submodels/../../x.onnx"
    assert reader_refuses(record)
    assert complaints(PLAN, record)


def mistake_of_key(key: str) -> str:
    """Return what the reader says of an entry's key, or nothing."""
    try:
        for text, _ in split_turns(key, "key"):
            parts = parse_key(text, "key")
            if parts.kind == "cpu":
                read_cores(parts.unit, None, "key")
    except RankSliceError as error:
        return str(error)
    return ""


@given(KEYS_OF_ENTRIES)
def test_the_schema_takes_the_keys_that_are_read(key: str) -> None:
    mistake = mistake_of_key(key)
    if not complaints(MAPPING, {key: ["layer"]}):
        # How large numbers may be, and which of two is larger, the reader says alone.
        about_numbers = "backwards|beyond|more than|repeated|add up|[0-9]{4,}' is not a host core"
        # Which boards there are, it does not know.
        about_numbers += "|not of the form board_resource"
        assert not mistake or re.search(about_numbers, mistake)
    else:
        assert mistake


def platform_is_read(value: object) -> bool:
    try:
        parse_platform_yaml(yaml.dump(value), "platform.yaml")
    except RankSliceError:
        return False
    return True


@given(st.one_of(VALUES, PLATFORMS))
def test_what_is_read_as_a_platform_fits_the_schema(value: object) -> None:
    if platform_is_read(value):
        assert [] == complaints(PLATFORM, yaml.safe_load(yaml.dump(value)))
