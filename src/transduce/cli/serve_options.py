"""Options of ``transduce serve``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from transduce.cli.options import LIMITS, MODEL, NETWORK, SEARCH

ServedFolders = Annotated[
    list[Path] | None, Argument(metavar="[MODEL]...", help="Model folders; each knows its languages.")
]
Languages = Annotated[
    list[str] | None,
    Option(
        "--languages",
        metavar="FROM-TO=MODEL",
        help="Serve a model folder for these languages, whatever it knows itself: de-en=runs/x/final. "
        "May be repeated.",
        rich_help_panel=MODEL,
    ),
]
Lazy = Annotated[bool, Option("--lazy", help="Load each model when it is first used.", rich_help_panel=MODEL)]
Memory = Annotated[
    float | None,
    Option(
        metavar="GB",
        min=0.001,
        max=100_000,
        help="Unload the models that were used least recently when all weights exceed this size.",
        rich_help_panel=MODEL,
    ),
]
Data = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="Folder for glossaries and documents. By default, they are lost when the server stops.",
        rich_help_panel=MODEL,
    ),
]
Host = Annotated[
    str,
    Option(
        metavar="ADDRESS",
        help="Address to listen on; 0.0.0.0 for all of this machine.",
        rich_help_panel=NETWORK,
    ),
]
Port = Annotated[int, Option(metavar="N", min=0, max=65535, help="Port.", rich_help_panel=NETWORK)]
Workers = Annotated[
    int, Option(metavar="N", min=1, max=256, help="Processes on one port.", rich_help_panel=NETWORK)
]
Threads = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=1024,
        help="Computing threads of each process. By default, all cores are shared out.",
        rich_help_panel=NETWORK,
    ),
]
KeyFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="API keys, one per line; the environment variable TRANSDUCE_API_KEYS may hold others. "
        "Without keys, everybody who reaches the port may use the server.",
        rich_help_panel=NETWORK,
    ),
]
Cors = Annotated[
    list[str] | None,
    Option(
        "--cors",
        metavar="ORIGIN",
        help="Allow pages of this origin to call the server: https://example.org, or * for all. "
        "May be repeated.",
        rich_help_panel=NETWORK,
    ),
]
Rate = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        max=1_000_000,
        help="Requests per minute of each key and of each address.",
        rich_help_panel=LIMITS,
    ),
]
MaxCharacters = Annotated[
    int,
    Option(metavar="N", min=1, max=100_000_000, help="Characters of one request.", rich_help_panel=LIMITS),
]
MaxWaiting = Annotated[
    int,
    Option(
        metavar="N",
        min=1,
        max=10_000_000,
        help="Sentences of all requests that may wait; more are answered with status 429.",
        rich_help_panel=LIMITS,
    ),
]
Timeout = Annotated[
    float,
    Option(metavar="SECONDS", min=0.1, max=86_400, help="Time for one request.", rich_help_panel=LIMITS),
]
NoGuard = Annotated[
    bool,
    Option(
        "--no-guard",
        help="Do not look for loops, copies and absurd lengths in translations.",
        rich_help_panel=SEARCH,
    ),
]
