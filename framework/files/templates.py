"""Templates, and documents rendered from them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import jinja2

from rankslice.framework.wording import harmless


def template_text(name: str) -> str:
    return (files("rankslice") / "templates" / name).read_text(encoding="utf-8")


def render_markup(template: str, **values: object) -> str:
    """Return an HTML or SVG document; the same bytes for the same values.

    Texts are escaped, and lose their control characters.
    """
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _finalized(value: object) -> object:
    return harmless(value.replace("\t", " ")) if type(value) is str else value
