"""Write the JSON Schemas of mapping and platform files.

Run it with ``python -m rankslice.framework.specs.schemas``.

They lie in ``templates/`` so that every installation has them.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from rankslice.framework.specs.platform_yaml import platform_schema
from rankslice.framework.specs.read_mapping import mapping_schema

__all__ = ["schema_texts"]


def schema_texts() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    schemas = {"mapping.schema.json": mapping_schema(), "platform.schema.json": platform_schema()}
    return {name: json.dumps(schema, indent=1) + "\n" for name, schema in schemas.items()}


def main() -> None:
    """Write the schemas to ``templates/``."""
    for name, text in schema_texts().items():
        Path(str(files("rankslice") / "templates" / name)).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
