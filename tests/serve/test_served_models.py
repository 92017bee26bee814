"""Served models: their rates, and which folders may take the place of theirs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from served import Doubling

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.serve.models import Model, Rate
from rankslice.serve.repository import Changes, ServedJob, Version, find_versions, state_of
from rankslice.session.pipeline import prepare_fed_job


def test_the_first_second_is_not_divided_by_ten() -> None:
    rate = Rate()
    assert 0.0 == rate.per_second(100.0)
    rate.begin(100.0)
    for number in range(100):
        rate.count(100.0 + number / 100)
    assert 100.0 == pytest.approx(rate.per_second(101.0))
    assert 20.0 == pytest.approx(rate.per_second(105.0))


def test_only_the_last_ten_seconds_count() -> None:
    rate = Rate()
    rate.begin(0.0)
    for number in range(2000):
        rate.begin(number / 100)
        rate.count(number / 100)
    assert 100.0 == pytest.approx(rate.per_second(20.0), rel=0.03)
    assert 50.0 == pytest.approx(rate.per_second(25.0), rel=0.03)
    assert 0.0 == rate.per_second(31.0)


def test_its_memory_does_not_grow_with_the_events_that_nobody_asks_for() -> None:
    rate = Rate()
    for number in range(100_000):
        rate.count(number / 100)
    assert len(pickle.dumps(rate)) < 20_000


def served(folder: Path, **changed: Any) -> ServedJob:
    """Return the job of a folder, whose model was another one as far as it is changed."""
    job = read_driver(folder / "driver.py")
    specs = {"name": Path(job.model).stem, "inputs": job.inputs, "outputs": job.outputs}
    pipeline: Any = SimpleNamespace(**{**specs, **changed})

    def prepare(path: Path) -> Any:
        return prepare_fed_job(path, RunOptions(), check_memory=False)

    return ServedJob(Version(folder), lambda path: pipeline, prepare, pipeline)


def test_the_same_model_may(built: Path) -> None:
    served(built).check()


def test_a_model_of_another_name_may_not(built: Path) -> None:
    with pytest.raises(
        RankSliceError, match=r"name of its model changed: .*, before digits; restart"
    ):
        served(built, name="digits").check()


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_a_model_with_other_tensors_may_not(built: Path, kind: str) -> None:
    spec = getattr(read_driver(built / "driver.py"), kind)[0]
    other = dataclasses.replace(spec, shape=(7, *spec.shape[1:]))
    with pytest.raises(
        RankSliceError, match=rf"{kind} of its model changed: .*, before {spec.name} .*\[7, "
    ):
        served(built, **{kind: (other,)}).check()


def test_what_is_no_build_folder_may_not(built: Path, tmp_path: Path) -> None:
    job = served(built)
    job.version = Version(tmp_path)
    with pytest.raises(RankSliceError, match=r"plan\.json"):
        job.check()


def copied(built: Path, *places: Path) -> None:
    for place in places:
        shutil.copytree(built, place)


def test_folders_have_models_in_versions(built: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    copied(built, models / "a" / "10", models / "a" / "9", models / "b" / "1", models / "a" / "01")
    (models / "c" / "1").mkdir(parents=True)
    versions = [Version(models / name / number, name, number) for name, number in
                (("a", "9"), ("a", "10"), ("b", "1"))]  # fmt: skip
    assert versions == find_versions([models])
    assert versions[:2] == find_versions([models / "a"])
    assert [Version(built), *versions[2:]] == find_versions([built, models / "b"])
    assert [Version(tmp_path / "none")] == find_versions([tmp_path / "none"])


def test_a_change_counts_once_it_is_the_same_twice(built: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    copied(built, models / "a" / "1")
    one, two = (Version(models / "a" / number, "a", number) for number in "12")
    changes = Changes([models])
    assert ([], [], []) == changes.take()
    copied(built, two.folder)
    assert ([], [], []) == changes.take()
    assert ([two], [], []) == changes.take()
    (two.folder / "report.json").write_text("a run writes it")
    os.utime(one.folder / "driver.py", (1, 1))
    assert ([], [], []) == changes.take()
    assert ([], [one], []) == changes.take()
    assert changes.is_settled(two)
    (two.folder / "plan.json").unlink()
    assert [([], [], [])] * 3 == [changes.take() for _ in range(3)]
    assert not changes.is_settled(two)
    shutil.rmtree(two.folder)
    assert ([], [], []) == changes.take()
    assert ([], [], [two]) == changes.take()
    assert ([], [], []) == changes.take()
    assert () == state_of(two.folder)


def test_all_changes_count_at_once_when_told_to_follow_them(built: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    copied(built, models / "a" / "1")
    one, two = (Version(models / "a" / number, "a", number) for number in "12")
    changes = Changes([models])
    copied(built, two.folder)
    changes.take()  # as seen by a look just before
    shutil.rmtree(one.folder)
    assert ([two], [], [one]) == changes.take(at_once=True)
    assert ([], [], []) == changes.take(at_once=True)


def test_a_version_that_is_removed_goes_when_no_request_holds_it() -> None:
    async def remove() -> list[str]:
        model, ends = Model(Doubling()), []

        async def release() -> None:
            await model.released()
            ends.append("released")

        with model.held():
            releasing = asyncio.ensure_future(release())
            await asyncio.sleep(0.2)
            ends.append("answered")
        await asyncio.wait_for(releasing, 5)
        return ends

    assert ["answered", "released"] == asyncio.run(remove())
