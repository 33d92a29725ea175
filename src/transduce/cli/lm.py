"""``transduce lm``: language models."""

from transduce.cli import lm_generate, lm_perplexity, lm_train
from transduce.cli.group import group

app = group(
    "Language models (GPT): train on plain text, generate text, measure perplexity.",
    "transduce lm train --text stories.txt --out runs/stories",
    {
        "train": lm_train.train,
        "generate": lm_generate.generate,
        "perplexity": lm_perplexity.perplexity,
    },
)
