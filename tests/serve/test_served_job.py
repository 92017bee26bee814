"""Which folders may take the place of one that is served."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.serve.server import ServedJob
from rankslice.session.pipeline import prepare_fed_job


def served(folder: Path, **changed: Any) -> ServedJob:
    """Return the job of a folder, whose model was another one as far as it is changed."""
    job = read_driver(folder / "driver.py")
    specs = {"name": Path(job.model).stem, "inputs": job.inputs, "outputs": job.outputs}
    pipeline: Any = SimpleNamespace(**{**specs, **changed})

    def prepare(path: Path) -> Any:
        return prepare_fed_job(path, RunOptions(), check_memory=False)

    return ServedJob(folder, lambda path: pipeline, prepare, pipeline)


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
    job.folder = tmp_path
    with pytest.raises(RankSliceError, match=r"plan\.json"):
        job.check()
