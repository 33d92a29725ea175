"""``transduce lm train``, ``transduce mlm train`` and ``transduce mlm finetune``, in Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from transduce.config import RunConfig
from transduce.errors import DataError
from transduce.runs.classes_run import ClassesRun
from transduce.runs.defaults import UserChoices, config_of
from transduce.runs.text_run import LanguageModelRun, MaskedTextRun, TextInputs, TextRun
from transduce.runs.train import File, Files, kind_or_file, paths_of
from transduce.training.distributed import join_workers

What = Literal["lm", "mlm", "classes"]
_HOLD_OUT: dict[What, float] = {"lm": 0.02, "mlm": 0.02, "classes": 0.1}
RUNS: dict[What, type[TextRun]] = {"lm": LanguageModelRun, "mlm": MaskedTextRun, "classes": ClassesRun}


@dataclass(frozen=True)
class TextOptions:
    """What to train on, and what: the options of the commands."""

    text: Files = None
    valid: Files = None
    config: RunConfig | File | None = None
    preset: str | None = None
    start: File | None = None  # a model folder to go on from; --from on the command line
    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    tokenizer: File | None = None  # bpe if not given, wordpiece for masked text
    vocabulary: int | None = None  # the most tokens; 8,000 if not given
    packed: bool | None = None  # lines end to end, as one text; if not given, only for ``lm``
    max_length: int | None = None
    hold_out: float | None = None  # 0.02 if not given, 0.1 for classes
    cased: bool = False

    def inputs(self, what: What) -> TextInputs:
        """The text, and how it is cut up."""
        train = paths_of(self.text)
        if not train:
            raise DataError("no files were given", "name them: --text FILE")
        return TextInputs(
            train,
            paths_of(self.valid),
            tokenizer=kind_or_file(
                self.tokenizer,
                "wordpiece" if what == "mlm" else "bpe",
                self.start,
                vocabulary=self.vocabulary,
                cased=self.cased,
            ),
            vocabulary=TextInputs.vocabulary if self.vocabulary is None else self.vocabulary,
            packed=what == "lm" if self.packed is None else self.packed,
            max_length=self.max_length,
            hold_out=_HOLD_OUT[what] if self.hold_out is None else self.hold_out,
            cased=self.cased,
        )

    def choices(self) -> UserChoices:
        """The model, and how long it is trained."""
        return UserChoices(
            config=config_of(self.config),
            preset=self.preset,
            start=None if self.start is None else Path(self.start).expanduser(),
            steps=self.steps,
            epochs=self.epochs,
            minutes=self.minutes,
        )


def train_text(
    what: What,
    out: File,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    console: Console | None = None,
    **options: Any,
) -> bool:
    """Train on plain text in the run folder ``out``; says whether the run is finished.

    The other options are those of `TextOptions`: ``train_text("lm", "runs/tales", text="tales.txt")``.
    With ``resume`` a run that is in ``out`` goes on. The trained model is in ``out/final``.
    """
    chosen = TextOptions(**options)
    with join_workers() as team:
        run = RUNS[what](Path(out).expanduser(), console or Console(quiet=not team.is_main), team)
        return run.carry_out(
            lambda: run.prepare(chosen.inputs(what), chosen.choices()),
            resume=resume,
            steps=chosen.steps,
            tensorboard=tensorboard,
        )
