"""Write the JSON Schemas of mapping, platform, plan and profile files, for editors and other tools.

``python -m rankslice.framework.specs.schemas FOLDER`` writes them to a folder of yours; without
a folder, to ``templates/``, where every installation has them.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from rankslice.framework.plan import plan_schema
from rankslice.framework.profile import profile_schema
from rankslice.framework.specs.platform_yaml import platform_schema
from rankslice.framework.specs.read_mapping import mapping_schema

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_texts() -> dict[str, str]:
    schemas: dict[str, dict[str, Any]] = {
        "mapping.schema.json": mapping_schema(),
        "plan.schema.json": plan_schema(),
        "platform.schema.json": platform_schema(),
        "profile.schema.json": profile_schema(),
    }
    return {
        name: json.dumps({"$schema": _DRAFT, **schema}, indent=1) + "\n"
        for name, schema in schemas.items()
    }


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write the schemas into a folder, made if needed; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = schema_texts()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return tuple(folder / name for name in texts)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else str(files("rankslice") / "templates")
    for written in write_schemas(Path(chosen)):
        print(written)
