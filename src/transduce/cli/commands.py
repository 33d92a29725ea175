"""Which commands there are."""

import typer

from transduce.cli import (
    check,
    demo,
    evaluate,
    import_folder,
    inspect,
    interactive,
    lm,
    mlm,
    paper,
    plan,
    report,
    score,
    train,
    translate,
    vision,
)


def add_to(app: typer.Typer) -> None:
    """All of them."""
    app.command("check")(check.check)
    app.command("demo")(demo.demo)
    app.command("evaluate")(evaluate.evaluate)
    app.command("import")(import_folder.import_folder)
    app.command("inspect")(inspect.inspect)
    app.command("interactive")(interactive.interactive)
    app.command("paper")(paper.paper)
    app.command("plan")(plan.plan)
    app.command("report")(report.report)
    app.command("score")(score.score)
    app.command("train")(train.train)
    app.command("translate")(translate.translate)
    app.add_typer(lm.app, name="lm")
    app.add_typer(mlm.app, name="mlm")
    app.add_typer(vision.app, name="vision")
