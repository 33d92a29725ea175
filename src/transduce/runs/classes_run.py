"""A run folder that teaches a BERT to tell the classes of texts: lines of text, tab, class.

Where a class belongs to two texts, they stand before it with a tab between them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.config import BERTConfig, GPTConfig, RunConfig
from transduce.data.chunks import RawPair
from transduce.data.clean import usable
from transduce.data.pair_files import Tsv
from transduce.data.prepare import is_held_out
from transduce.data.prepared import Pairs, PairWriter, Sequences
from transduce.data.text_pairs import encode_lines
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.errors import ConfigError, DataError
from transduce.runs.defaults import UserChoices
from transduce.runs.text_run import BertRun, TextInputs
from transduce.training.objectives.text_classes import TextClassesObjective


class ClassesRun(BertRun):
    """A BERT with a new head, on top of one that knows the language."""

    command = "mlm finetune"

    def wished_model(self, choices: UserChoices, inputs: TextInputs, tokens: int) -> BERTConfig:
        """The model to start from, with a pooler and these classes instead of its head for masked tokens."""
        model = super().wished_model(choices, inputs, tokens)
        classes = sorted({label for _, label in labelled(inputs.train)})
        if not isinstance(model, BERTConfig) or choices.start is None:
            raise ConfigError("there is no model to start from", "name one: --from MODEL")
        if len(classes) < 2:
            raise DataError(
                f"{' and '.join(map(str, inputs.train))} has {len(classes)} class", "two are needed"
            )
        return model.model_copy(update={"masked_head": False, "pooler": True, "classes": classes})

    def train_tokenizer(self, inputs: TextInputs) -> SideTokenizer:
        """See `TextRun`."""
        raise ConfigError("there is no model to start from", "name one: --from MODEL")

    def write(self, inputs: TextInputs, tokenizer: TokenizerPair, model: GPTConfig | BERTConfig) -> None:
        """See `TextRun`; what is longer than the model can read is cut."""
        if not isinstance(model, BERTConfig):
            raise TypeError(f"classes are told by a bert, not a {model.family}")
        numbers = {name: number for number, name in enumerate(model.classes)}
        folder, eos = self.folder / "text", tokenizer.vocabulary.eos
        sizes = tokenizer.source.size, len(numbers)
        with PairWriter(folder / "train", *sizes) as train, PairWriter(folder / "valid", *sizes) as valid:
            for paths, writer in ((inputs.train, train), (inputs.valid, valid)):
                for text, label in labelled(paths):
                    if label not in numbers:
                        raise DataError(
                            f"validation has the class {label!r}, which training has not", "correct it"
                        )
                    held = writer is train and not inputs.valid and is_held_out(text, inputs.hold_out)
                    rows = encode_lines([text], tokenizer.source, eos, model).rows
                    (valid if held else writer).write(rows, [[numbers[label]]])
        for part in ("train", "valid"):
            if not len(Pairs.open(folder / part)):
                raise DataError(
                    f"no text is left for {part}", "give more, a file for --valid, or another --hold-out"
                )

    def texts(self, part: str) -> Sequences:
        """See `TextRun`."""
        return Pairs.open(self.folder / "text" / part).source

    def objective(self, part: str, config: RunConfig, tokenizer: TokenizerPair) -> TextClassesObjective:
        """See `TextRun`."""
        return TextClassesObjective(Pairs.open(self.folder / "text" / part), config.training)


def labelled(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Texts, or two with a tab between them, and their classes."""
    for path in paths:
        for chunk in _Labelled(path).chunks():
            found = usable(chunk)
            yield from zip(found.sources, (label.strip() for label in found.targets), strict=True)


class _Labelled(Tsv):
    """The last column is the target, and all before it are the source."""

    def pair(self, text: bytes, line: int) -> RawPair:
        """Split one line."""
        texts, tab, label = text.rpartition(b"\t")
        return RawPair(texts, label, line) if tab else super().pair(text, line)
