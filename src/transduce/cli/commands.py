"""The list of commands, in the panels and the order in which ``transduce --help`` shows them."""

from collections.abc import Callable

import typer

from transduce.cli import (
    average,
    backtranslate,
    check,
    demo,
    evaluate,
    export,
    import_model,
    inspect,
    interactive,
    lm,
    merge,
    mlm,
    paper,
    plan,
    pull,
    push,
    quantize,
    report,
    score,
    serve,
    shortlist,
    train,
    translate,
    vision,
)
from transduce.cli.command import Command

_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Train": {
        "demo": demo.demo,
        "check": check.check,
        "plan": plan.plan,
        "train": train.train,
        "report": report.report,
        "average": average.average,
        "merge": merge.merge,
    },
    "Translate": {
        "translate": translate.translate,
        "serve": serve.serve,
        "interactive": interactive.interactive,
        "backtranslate": backtranslate.backtranslate,
        "shortlist": shortlist.shortlist,
    },
    "Evaluate and understand": {
        "evaluate": evaluate.evaluate,
        "score": score.score,
        "inspect": inspect.inspect,
        "paper": paper.paper,
    },
    "Exchange models": {
        "import": import_model.import_model,
        "export": export.export,
        "quantize": quantize.quantize,
        "push": push.push,
        "pull": pull.pull,
    },
}
_GROUPS = {"lm": lm.app, "mlm": mlm.app, "vision": vision.app}


def add_to(app: typer.Typer) -> None:
    """Add all commands."""
    for panel, commands in _PANELS.items():
        for name, command in commands.items():
            app.command(name, cls=Command, rich_help_panel=panel)(command)
    for name, group in _GROUPS.items():
        app.add_typer(group, name=name, rich_help_panel="Other model families")
