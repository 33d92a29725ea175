"""``transduce vision``: image classifiers."""

from transduce.cli import vision_classify, vision_evaluate, vision_inspect, vision_train
from transduce.cli.group import group

app = group(
    "Vision Transformers (ViT): train image classifiers, classify, evaluate, inspect attention.",
    "transduce vision train --images photos --out runs/photos",
    {
        "train": vision_train.train,
        "classify": vision_classify.classify,
        "evaluate": vision_evaluate.evaluate,
        "inspect": vision_inspect.inspect,
    },
)
