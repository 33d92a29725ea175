"""``transduce mlm``: models of masked text."""

from transduce.cli import mlm_classify, mlm_embed, mlm_fill, mlm_finetune, mlm_train
from transduce.cli.group import group

app = group(
    "Models of masked text (BERT): train one, fill masks, turn texts into vectors, tell classes.",
    "transduce mlm fill runs/tales-bert/final 'The [MASK] sat.'",
    train=mlm_train.train,
    fill=mlm_fill.fill,
    embed=mlm_embed.embed,
    finetune=mlm_finetune.finetune,
    classify=mlm_classify.classify,
)
