"""What must say what it is: every module, and all that the package offers."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest
from test_imports import FILES, name_of

import rankslice


def offered() -> Iterator[tuple[str, object]]:
    for name in rankslice.__all__:
        thing = getattr(rankslice, name)
        yield name, thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    yield f"{name}.{member}", value


def test_each_module_says_what_it_is() -> None:
    lacking = [
        name_of(file)
        for file in FILES
        if file.stat().st_size and not ast.get_docstring(ast.parse(file.read_text("utf-8")))
    ]
    assert [] == lacking


@pytest.mark.parametrize(("name", "thing"), [*offered()])
def test_what_the_package_offers_says_what_it_is(name: str, thing: object) -> None:
    assert inspect.getdoc(thing), name
