"""``transduce mlm``: masked language models."""

from transduce.cli import mlm_classify, mlm_embed, mlm_fill, mlm_finetune, mlm_train
from transduce.cli.group import group

app = group(
    "Masked language models (BERT): train, fill masks, embed texts, fine-tune text classifiers.",
    "transduce mlm fill runs/stories-bert/final 'The [MASK] sat.'",
    {
        "train": mlm_train.train,
        "fill": mlm_fill.fill,
        "embed": mlm_embed.embed,
        "finetune": mlm_finetune.finetune,
        "classify": mlm_classify.classify,
    },
)
