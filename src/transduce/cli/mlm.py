"""``transduce mlm``: models of masked text."""

import typer

from transduce.cli import mlm_classify, mlm_embed, mlm_fill, mlm_finetune, mlm_train

app = typer.Typer(
    no_args_is_help=False,
    rich_markup_mode=None,
    help="Models of masked text (BERT): train one, fill masks, turn texts into vectors, tell classes.",
)
app.command("train")(mlm_train.train)
app.command("fill")(mlm_fill.fill)
app.command("embed")(mlm_embed.embed)
app.command("finetune")(mlm_finetune.finetune)
app.command("classify")(mlm_classify.classify)


@app.callback(
    invoke_without_command=True,
    epilog="Example: transduce mlm fill runs/tales-bert/final 'The [MASK] sat.'",
)
def mlm(context: typer.Context) -> None:
    """Models of masked text (BERT): train one, fill masks, turn texts into vectors, tell classes."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
