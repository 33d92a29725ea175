"""A folder of Hugging Face transformers, loaded by that library, for comparisons with our model."""

import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transduce.artifact.tensors import read_tensor_header
from transduce.config import Vocabulary
from transduce.errors import ArtifactError, DependencyError
from transduce.interop.hugging_face import read_fields
from transduce.interop.hugging_face_tokens import TARGET_FOLDER
from transduce.interop.hugging_face_weights import WEIGHTS
from transduce.interop.peer import Pair, Search


class LineOutput(NamedTuple):
    """What transformers computes from a line of text, with its own tokenizer."""

    source: list[int]
    greedy: list[int]  # ids of the best target by greedy decoding, without start and end
    logits: Tensor  # of that target and its end: (target + 1, vocabulary)
    text: str


class HuggingFacePeer:
    """The encoder-decoder model of a folder; implements `transduce.interop.peer.Peer` and `TextPeer`.

    ``language`` is the token of the target language, which Marian's tokenizers read in the text itself.
    """

    def __init__(self, folder: Path, language: str = "") -> None:
        self._transformers, self._language = _library(), language
        self.description = f"transformers {self._transformers.__version__}"
        self.folder = folder
        self.model = load_peer(folder)

    @cached_property
    def tokenizer(self) -> Any:
        """The folder's tokenizer; the source's, if there are two."""
        return load_tokenizer(self.folder)

    @cached_property
    def _target_tokenizer(self) -> Any:
        inner = self.folder / TARGET_FOLDER
        return load_tokenizer(inner) if inner.exists() else self.tokenizer

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each source by the folder's tokenizer, with all that stands around it."""
        before = self._language if type(self.tokenizer).__name__ == "MarianTokenizer" else ""
        with _quiet():
            return [list(map(int, self.tokenizer(before + line)["input_ids"])) for line in lines]

    def decode(self, target: list[int]) -> str:
        """Return the text of a target by the folder's tokenizer."""
        return str(self._target_tokenizer.decode(target, skip_special_tokens=True))

    @torch.no_grad()
    def logits(self, source: list[int], target: list[int]) -> Tensor:
        """Return the logits of a target's tokens, (target, vocabulary)."""
        read = [self.model.config.decoder_start_token_id, *target[:-1]]
        result: Tensor = self.model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([read])
        ).logits[0]
        return result

    def score(self, pairs: Sequence[Pair]) -> list[Tensor]:
        """Return log-probabilities of all tokens at each position of a target: (target, vocabulary)."""
        return [self.logits(pair.source, pair.target).log_softmax(-1) for pair in pairs]

    @torch.no_grad()
    def search(self, sources: Sequence[list[int]], search: Search) -> list[list[int]]:
        """Return the best target of each source, without ``eos``."""
        return [self._search(source, search) for source in sources]

    def _search(self, source: list[int], search: Search) -> list[int]:
        config = self.model.config
        start, eos, pad = config.decoder_start_token_id, config.eos_token_id, config.pad_token_id
        beams = {"length_penalty": search.length_penalty, "early_stopping": "never"}
        prefix = [start, *search.prefix]
        with _quiet():
            found = self.model.generate(
                input_ids=torch.tensor([source]),
                decoder_input_ids=torch.tensor([prefix]),
                num_beams=search.beam,
                max_new_tokens=max(1, search.limit - len(search.prefix)),
                max_length=None,
                suppress_tokens=sorted({pad, start} - {eos}) or None,
                forced_bos_token_id=None,
                forced_eos_token_id=None,
                do_sample=False,
                **(beams if search.beam > 1 else {}),
            )
        tokens: list[int] = found[0, 1:].tolist()
        ends = [tokens.index(token) for token in (eos, pad) if token in tokens]
        return tokens[: min(ends, default=len(tokens))]


def outputs_of_lines(folder: Path, lines: Sequence[str], *, limit: int = 100) -> list[LineOutput]:
    """Load tokenizer and model of a folder and compute greedy targets, and their logits, for these lines."""
    peer = HuggingFacePeer(folder)
    eos, outputs = peer.model.config.eos_token_id, []
    forced = peer.model.generation_config.forced_bos_token_id
    for line in lines:
        (source,) = peer.encode([line])
        search = Search(1, limit, 1.0, [] if forced is None else [forced])
        (greedy,) = peer.search([source], search)
        logits = peer.logits(source, [*greedy, eos])
        outputs.append(LineOutput(source, greedy, logits, peer.decode(greedy)))
    return outputs


def load_peer(folder: Path) -> Any:
    """Load the model of a folder as the class that its ``config.json`` names, in evaluation mode."""
    library = _library()
    fields = read_fields(folder)
    (name, *_) = fields.get("architectures") or [""]
    kind = getattr(library, str(name), None)
    if kind is None:
        raise ArtifactError(f"{folder} names no class of transformers", "export the model again")
    options = {"add_pooling_layer": False} if name == "BertModel" and not _has_pooler(folder) else {}
    with _quiet():
        try:
            model, report = kind.from_pretrained(folder, output_loading_info=True, **options)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise ArtifactError(
                f"transformers cannot load {folder}: {first_line(error)}", "use another format"
            ) from error
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(problem):
            raise ArtifactError(
                f"transformers reports {problem.replace('_', ' ')} in {folder}: {sorted(report[problem])[0]}",
                "use another format",
            )
    return model.eval()


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a folder."""
    with _quiet():
        try:
            return _library().AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError) as error:
            raise ArtifactError(
                f"transformers cannot load the tokenizer in {folder}: {first_line(error)}",
                "use another format",
            ) from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or else its name."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def library_version() -> str:
    """Return the version of transformers."""
    return str(_library().__version__)


@torch.no_grad()
def continue_greedily(model: Any, prompt: list[int], limit: int, vocabulary: Vocabulary) -> list[int]:
    """Continue a prompt with at most ``limit`` tokens; it ends with what the folder itself calls its end.

    Padding and ``bos`` are forbidden, as in our searches.
    """
    forbidden = sorted({vocabulary.pad, vocabulary.bos} - {vocabulary.eos})
    with _quiet():
        found = model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=1,
            do_sample=False,
            max_new_tokens=limit,
            max_length=None,
            suppress_tokens=forbidden or None,
        )
    tokens: list[int] = found[0, len(prompt) :].tolist()
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return tokens[: min((tokens.index(end) for end in ends if end in tokens), default=len(tokens))]


def _has_pooler(folder: Path) -> bool:
    return "pooler.dense.weight" in read_tensor_header(folder / WEIGHTS).tensors


def _library() -> Any:
    try:
        version("transformers")
        import transformers
    except (ImportError, PackageNotFoundError):
        raise DependencyError(
            "the comparison needs transformers, which is not installed",
            "run: pip install transformers, or add --no-check",
        ) from None
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's progress bars and advice from the user's terminal."""
    library_logging: Any = importlib.import_module("transformers.utils.logging")
    level, bars = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
    library_logging.set_verbosity(logging.ERROR)
    library_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library_logging.set_verbosity(level)
        if bars:
            library_logging.enable_progress_bar()
