"""``transduce vision``: the commands for images."""

from transduce.cli import vision_classify, vision_evaluate, vision_inspect, vision_train
from transduce.cli.group import group

app = group(
    "Train and use Vision Transformers: the same encoder, over images.",
    "transduce vision train --images photos --out runs/photos",
    train=vision_train.train,
    classify=vision_classify.classify,
    evaluate=vision_evaluate.evaluate,
    inspect=vision_inspect.inspect,
)
