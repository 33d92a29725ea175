"""``transduce lm``: language models."""

from transduce.cli import lm_generate, lm_perplexity, lm_train
from transduce.cli.group import group

app = group(
    "Language models (GPT): train one on plain text, let it write, see how well it predicts.",
    "transduce lm train --text tales.txt --out runs/tales",
    train=lm_train.train,
    generate=lm_generate.generate,
    perplexity=lm_perplexity.perplexity,
)
