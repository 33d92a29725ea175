"""Every command in a valid form, as small as possible, and where hostile values can be put into it.

In the forms, ``{out}`` is a new folder for outputs, and ``{copy}`` a copy of a run folder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from transduce.cli.main import app

Form = Mapping[str, str]  # the value of each argument and option
_PAIR = {"--source": "source", "--target": "target"}
_RUN = {"--out": "{out}/run", "--steps": "1"}
_TEXT = {"--text": "source", "--vocabulary": "300", **_RUN}
FORMS: Mapping[str, Form] = {
    "train": {**_PAIR, "--config": "transformer.toml", "--vocabulary": "300", **_RUN},
    "check": _PAIR,
    "plan": {**_PAIR, "--config": "transformer.toml", "--vocabulary": "300"},
    "report": {"RUN": "{copy}"},
    "average": {"RUN": "runs/pairs", "--last": "2", "--out": "{out}/model"},
    "merge": {"ADAPTER": "runs/adapted/final", "--out": "{out}/model"},
    "translate": {"MODEL": "runs/pairs/final", "--input": "three", "--output": "{out}/text"},
    "backtranslate": {"MODEL": "runs/pairs/final", "--input": "three", "--output": "{out}/text.tsv"},
    "interactive": {"MODEL": "runs/pairs/final"},
    "shortlist": {"MODEL": "runs/pairs/final", **_PAIR, "--out": "{out}/lists"},
    "evaluate": {"MODEL": "runs/pairs/final", "--source": "three", "--reference": "three"},
    "score": {"MODEL": "runs/pairs/final", "--source": "three", "--target": "three"},
    "inspect": {"MODEL": "runs/pairs/final", "SENTENCE": "ab cd", "--out": "{out}/page.html"},
    # It cannot listen on this address, which belongs to nobody: otherwise, it would serve until stopped.
    "serve": {"[MODEL]...": "runs/pairs/final", "--host": "203.0.113.7"},
    "paper": {"--plots": "{out}/plots"},
    "import": {"FOLDER": "hugging", "--out": "{out}/model"},
    "export": {"MODEL": "runs/pairs/final", "--to": "ctranslate2", "--out": "{out}/exported"},
    "quantize": {"MODEL": "runs/pairs/final", "--out": "{out}/model"},
    "push": {"MODEL": "runs/pairs/final", "PLACE": "{out}/model"},
    "pull": {"PLACE": "runs/pairs/final", "--out": "{out}/model"},
    "demo": {"--task": "copy", "--out": "{out}/run", "--steps": "1"},
    "lm train": {**_TEXT, "--config": "gpt.toml"},
    "lm generate": {"MODEL": "runs/lm/final", "--max-length": "5"},
    "lm perplexity": {"MODEL": "runs/lm/final", "--text": "three"},
    "mlm train": {**_TEXT, "--config": "bert.toml"},
    "mlm fill": {"MODEL": "runs/mlm/final", "TEXT": "ab [MASK]"},
    "mlm embed": {"MODEL": "runs/mlm/final", "--input": "three", "--output": "{out}/vectors.npy"},
    "mlm finetune": {"--pairs": "labels.tsv", "--from": "runs/mlm/final", "--config": "classes.toml", **_RUN},
    "mlm classify": {"MODEL": "runs/classes/final", "--input": "three", "--output": "{out}/classes"},
    "vision train": {"--images": "photos", "--size": "8", "--config": "vit.toml", **_RUN},
    "vision classify": {"MODEL": "runs/images/final", "IMAGE": "cat.jpg"},
    "vision evaluate": {"MODEL": "runs/images/final", "--images": "photos"},
    "vision inspect": {"MODEL": "runs/images/final", "IMAGE": "cat.jpg", "--png": "{out}/page.png"},
}
SLOW = ("plan", "paper", "demo", "serve")  # seconds, even with valid options
# What else must be given, or (if the value is empty) left out, for an option to have an effect
_WITH: Mapping[str, Form] = {
    "--pairs": {"--source": "", "--target": ""},
    "--hypotheses": {"MODEL": "", "--source": ""},
    "--valid-source": {"--valid-target": "three"},
    "--valid-target": {"--valid-source": "three"},
    "--test-source": {"--test-target": "three"},
    "--test-target": {"--test-source": "three"},
    "--valid-source-factor": {
        **{"--source-factor": "factor", "--separate": "yes"},
        **{"--valid-source": "three", "--valid-target": "three"},
    },
    "--epochs": {"--steps": ""},
    "--minutes": {"--steps": ""},
    "--tokenizer": {"--vocabulary": ""},
    "--source-tokenizer": {"--vocabulary": ""},
    "--target-tokenizer": {"--vocabulary": ""},
    "--hold-out": {"--valid": ""},
    "--diversity": {"--diverse-groups": "2"},
    **{option: {"--sample": "yes"} for option in ("--temperature", "--top-k", "--top-p", "--seed")},
    **{
        option: {"--corpus": "three three", "SENTENCE": "", "--out": ""}
        for option in ("--corpus", "--limit", "--json")
    },
}
_WITH_HERE: Mapping[tuple[str, str], Form] = {
    ("translate", "--source-factor"): {"MODEL": "runs/factors/final"},
    ("average", "--steps"): {"--last": ""},
    ("export", "--reference"): {"--source": "three"},
    ("quantize", "--reference"): {"--source": "three"},
    ("evaluate", "--compare"): {"--hypotheses": "three", "MODEL": "", "--source": ""},
    ("lm generate", "--length-penalty"): {"--beam": "2"},
    **{
        (command, option): {}
        for command in ("train", "lm train", "lm generate", "mlm train", "mlm finetune", "vision train")
        for option in ("--seed", "--temperature", "--top-k", "--top-p", "--diversity")
    },
    **{
        (command, "--from"): {"--config": "", "--vocabulary": "", "--size": ""}
        for command in ("train", "plan", "lm train", "mlm train", "vision train")
    },
    ("train", "--adapter"): {"--config": "", "--vocabulary": "", "--from": "runs/pairs/final"},
    ("mlm finetune", "--pairs"): {},
    ("inspect", "--layer"): {"--out": "", "--png": "{out}/page.png"},
}
_FLAGS = ("--sample", "--separate")
_FILES = {
    "FILE",
    "FILE[:WEIGHT]",
    "KIND|FILE",
    "NAME|FILE",
    "PATH",
    "IMAGE",
    "MODEL",
    "RUN",
    "FOLDER",
    "OTHER",
    "DIR",
    "ADAPTER",
}
_NUMBERS = {"N", "X", "GB", "SECONDS", "RATE", "RANK", "N|HxW", "A,B,..."}
_OUTPUTS = {"--out", "--output", "--png", "--json", "--plots"}


@dataclass(frozen=True)
class Place:
    """An option or an argument of a command, where a value can be put."""

    command: str
    option: str
    metavar: str

    def __str__(self) -> str:
        return f"{self.command} {self.option}"

    def form(self, value: str) -> list[str]:
        """Return the command with this value here, and all else valid."""
        form = {
            **FORMS[self.command],
            **_WITH_HERE.get((self.command, self.option), _WITH.get(self.option, {})),
        }
        return arguments_of(self.command, {**form, self.option: value}, self.option)

    @property
    def is_output(self) -> bool:
        return self.option in _OUTPUTS


def arguments_of(command: str, form: Form, given: str = "") -> list[str]:
    """Return the words of a command; options without a value are left out, except a ``given`` one."""
    words, arguments = command.split(), []
    for name, value in form.items():
        if not value and name != given:
            continue
        if name in _FLAGS:
            words.append(name)
        elif name == "--corpus":
            words += [name, *value.split(" ")]
        elif name.startswith("-"):
            words.append(f"{name}={value}")
        else:
            arguments.append(value)
    return [*words, "--", *arguments] if arguments else words  # an argument may begin with a hyphen


def places() -> list[Place]:
    """Return every option and argument of every command that takes a value."""
    return [
        Place(name, option if option.startswith("-") else parameter.metavar, parameter.metavar)
        for name, command in _commands(typer.main.get_command(app))
        for parameter in command.params
        for option in parameter.opts[:1]
        if parameter.metavar
    ]


def file_places() -> list[Place]:
    """Return where a path can be given."""
    return [place for place in places() if place.metavar in _FILES]


def number_places() -> list[Place]:
    """Return where a number can be given."""
    return [place for place in places() if place.metavar in _NUMBERS]


def _commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command
