"""The page that follows one sentence through a model."""

from typing import Any

from transduce.inspection.render import embed, fill, read
from transduce.inspection.walk.scripts import walk_script

PAGE_SCRIPTS = (
    "strings",
    "station_strings",
    "dom",
    "strips",
    "quiz",
    "app",
    "pieces",
    "station_input",
    "station_attention",
    "station_heads",
    "station_layers",
    "station_output",
    "station_search",
    "stations",
    "map",
    "main",
)


def walk_page(data: dict[str, Any]) -> str:
    """Return the HTML page for the data of `walk_data`."""
    parts = {
        "style": read("base.css") + read("walk.css"),
        "computing": walk_script(),
        "script": read("colors.js") + "\n".join(read(f"walk_ui/{name}.js") for name in PAGE_SCRIPTS),
        "data": embed(data),
    }
    return fill("walk.html", parts)
