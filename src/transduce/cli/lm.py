"""``transduce lm``: language models."""

import typer

from transduce.cli import lm_generate, lm_perplexity, lm_train

app = typer.Typer(
    no_args_is_help=False,
    rich_markup_mode=None,
    help="Language models (GPT): train one on plain text, let it write, see how well it predicts.",
)
app.command("train")(lm_train.train)
app.command("generate")(lm_generate.generate)
app.command("perplexity")(lm_perplexity.perplexity)


@app.callback(
    invoke_without_command=True,
    epilog="Example: transduce lm train --text tales.txt --out runs/tales",
)
def lm(context: typer.Context) -> None:
    """Language models (GPT): train one on plain text, let it write, see how well it predicts."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
