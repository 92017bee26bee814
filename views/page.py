"""Pages: what is shown as one HTML file.

The file needs no network, no server and no script; with its script, tables and figures can be
copied. All texts are escaped where they are filled in. Markup comes from this program's own code
only, and the page's policy runs no other script than the one that is part of it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

from rankslice.framework.files.templates import render_markup, template_text
from rankslice.views.content import Html, Page


def page_html(page: Page) -> str:
    """Return a page as an HTML document; the same bytes for the same page.

    Raises:
        ValueError: a script or style of its markup would end its own element.
    """
    own = [part for section in page.sections for part in section.parts if isinstance(part, Html)]
    scripts = dict.fromkeys(part.script for part in own if part.script)
    in_functions = (f"(function () {{\n{script}}})();\n" for script in scripts)
    script = "".join([template_text("page.js"), *in_functions])
    style = "".join([template_text("page.css"), *dict.fromkeys(part.style for part in own)])
    if "</" in script or "<!--" in script or "</" in style:
        raise ValueError("a page's script or style has the end of an element in it")
    return render_markup(
        "page.html.j2",
        page=page,
        style=style,
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
    )


def data_block(name: str, value: Any) -> str:
    """Return a value of JSON as markup that shows nothing, for a script of the page to read.

    The script reads ``JSON.parse(document.getElementById(name).textContent)``.
    """
    # In JSON these occur in texts alone.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{text}</script>\n'
