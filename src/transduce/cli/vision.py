"""``transduce vision``: the commands for images."""

import typer

from transduce.cli import vision_classify, vision_evaluate, vision_inspect, vision_train

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=False,
    help="Train and use Vision Transformers: the same encoder, over images.",
)
app.command("train")(vision_train.train)
app.command("classify")(vision_classify.classify)
app.command("evaluate")(vision_evaluate.evaluate)
app.command("inspect")(vision_inspect.inspect)


@app.callback(
    invoke_without_command=True, epilog="Example: transduce vision train --images photos --out runs/photos"
)
def vision(context: typer.Context) -> None:
    """Train and use Vision Transformers: the same encoder, over images."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
