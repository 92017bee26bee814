import json
from importlib.resources import files

import pytest

from rankslice.framework.specs.schemas import schema_texts


@pytest.mark.parametrize("name", sorted(schema_texts()))
def test_the_shipped_schemas_are_those_of_the_code(name: str) -> None:
    shipped = (files("rankslice") / "templates" / name).read_text(encoding="utf-8")
    assert json.loads(schema_texts()[name]) == json.loads(shipped)
