"""The model folder: ``config.json`` and ``model.safetensors``.

The weights carry the header they were saved with. Renaming them into place is the one moment that counts:
before it there is the older model, after it the newer one, whole. ``config.json`` is the same header for
people to read; edited, it may change what leaves the weights' meaning alone (`FREE`), and nothing else.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transduce.config import ModelConfig, Settings, Vocabulary, validate
from transduce.data.tokenizer import JOINT, SOURCE, TARGET, TokenizerPair
from transduce.engine.precision import in_precision
from transduce.errors import ArtifactError, ConfigError
from transduce.machine import lacks_announced_instructions
from transduce.models.bert import BERT
from transduce.models.build import TextToText, build
from transduce.models.gpt import GPT
from transduce.models.protocol import Model, Precision
from transduce.models.rnn import RNN
from transduce.models.transformer import Transformer
from transduce.models.vit import ViT

ModelT = TypeVar("ModelT", bound=Model)
FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_FLOATS = {"F64", "F32", "F16", "BF16"}
FREE = {"dropout", "attention_dropout", "activation_dropout"}


class Header(Settings):
    """What ``config.json`` holds."""

    format: int
    transduce: str  # the version that wrote the folder
    save: str  # which save: the same in both files
    model: ModelConfig
    vocabulary: Vocabulary | None = None  # of a model that reads or writes text
    longest: int | None = None  # source that it was trained on, in tokens


def save(
    model: Model, folder: str | Path, tokenizer: TokenizerPair | None = None, *, longest: int | None = None
) -> None:
    """Write a model folder. An older model there is replaced, whole or not at all; other files stay.

    ``longest`` is how many tokens the longest source had that the model was trained on, if that is known.
    """
    folder = Path(folder).expanduser()
    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    _check_weights(model, folder)
    header = Header(
        format=FORMAT,
        transduce=version("transduce"),
        save=uuid.uuid4().hex,
        model=model.config,
        vocabulary=model.vocabulary,
        longest=longest,
    )
    text = header.model_dump_json(indent=2, exclude_none=True) + "\n"
    try:
        if not _may_write(folder):
            raise ArtifactError(f"{folder} exists and is not a model folder", "choose another place")
        folder.mkdir(parents=True, exist_ok=True)
        with _Replacement(folder) as new:
            if tokenizer is not None:
                tokenizer.save(new)
            (new / CONFIG).write_text(text, encoding="utf-8")
            save_file(_weights(model), new / WEIGHTS, {"transduce": text})
            # safetensors writes for the owner's eyes only, whatever the user's umask says
            (new / WEIGHTS).chmod((new / CONFIG).stat().st_mode)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        older = " (the older model in it is still whole)" if (folder / WEIGHTS).exists() else ""
        remedy = f"check the space and your rights there{older}"
        raise ArtifactError(f"cannot write {folder}: {reason}", remedy) from error


def load(folder: str | Path, *, precision: Precision = "float32") -> Model:
    """Read a model folder; the model is on the CPU and in evaluation mode.

    In another precision than float32 it is for use alone, and ``int8`` cannot be saved again.
    """
    lacks_announced_instructions()  # whatever is loaded later: what is loaded now will be computed with
    folder = Path(folder).expanduser()
    path = folder / WEIGHTS
    header = read_header(folder)
    try:
        shapes = _shapes(_empty(header.model, header.vocabulary))
    except ConfigError as error:
        raise ArtifactError(f"{path}: {error.problem}", "copy the model folder again") from error
    model = assemble(header.model, header.vocabulary, _read_weights(path, shapes))
    return model if precision == "float32" else in_precision(model, precision)


def load_text_to_text(folder: str | Path, *, precision: Precision = "float32") -> TextToText:
    """The same, of a model that turns one text into another."""
    model = load(folder, precision=precision)
    if not isinstance(model, Transformer | RNN):
        raise ArtifactError(
            f"{folder} holds a model of family {model.config.family!r}, which turns no text into another",
            "give the folder of a transformer or an rnn",
        )
    return model


def load_gpt(folder: str | Path) -> GPT:
    """The same, of a language model."""
    made_by = "give the folder of a gpt: transduce lm train makes one"
    return _load_kind(folder, GPT, "not a language model", made_by)


def load_bert(folder: str | Path) -> BERT:
    """The same, of a model of masked text."""
    made_by = "give the folder of a bert: transduce mlm train makes one"
    return _load_kind(folder, BERT, "not one of masked text", made_by)


def load_vit(folder: str | Path) -> ViT:
    """The same, of a model that reads images."""
    return _load_kind(folder, ViT, "which reads no images", "give the folder of a vit")


def _load_kind(folder: str | Path, kind: type[ModelT], fault: str, remedy: str) -> ModelT:
    model = load(folder)
    if not isinstance(model, kind):
        raise ArtifactError(f"{folder} holds a model of family {model.config.family!r}, {fault}", remedy)
    return model


def assemble(config: ModelConfig, vocabulary: Vocabulary | None, weights: dict[str, Tensor]) -> Model:
    """A model with these weights, one for each of its named parameters; in evaluation mode."""
    model = _empty(config, vocabulary)
    model.load_state_dict(weights, strict=False, assign=True)
    return model.eval()


def is_part_of_a_model(path: Path) -> bool:
    """Whether a file is one of those that a model folder consists of."""
    path = path.expanduser().resolve()
    return path.name in {CONFIG, WEIGHTS, JOINT, SOURCE, TARGET} and (path.parent / WEIGHTS).exists()


def load_tokenizer(folder: str | Path) -> TokenizerPair:
    """The tokenizer of a model folder."""
    folder = Path(folder).expanduser()
    tokenizer, vocabulary = TokenizerPair.load(folder), read_header(folder).vocabulary
    if vocabulary is not None and tokenizer.vocabulary != vocabulary:
        raise ArtifactError(
            f"{folder} has a tokenizer of {_sizes(tokenizer.vocabulary)} tokens, and a model of "
            f"{_sizes(vocabulary)}",
            "put back the tokenizer that the model was trained with",
        )
    return tokenizer


def _sizes(vocabulary: Vocabulary) -> str:
    sizes = dict.fromkeys((vocabulary.source, vocabulary.target))
    return " and ".join(f"{size:,}" for size in sizes)


def read_header(folder: Path) -> Header:
    """The weights' header, with what ``config.json`` may change about it."""
    if not os.path.isdir(folder):  # noqa: PTH112 (a name that is too long raises in pathlib)
        raise ArtifactError(f"{folder} is not a folder", f"give the folder that holds {CONFIG} and {WEIGHTS}")
    path = folder / CONFIG
    try:
        readable = _parse(path.read_text(encoding="utf-8-sig"), path)
    except FileNotFoundError:
        if folder.parent.name == "checkpoints":
            remedy = f"give a model folder, such as {folder.parent.parent / 'final'}"
            raise ArtifactError(f"{folder} is a checkpoint", remedy) from None
        if (folder / WEIGHTS).exists():  # a first save that was cut off before its last file
            return _stored_header(folder / WEIGHTS)
        final = folder / "final"  # of a run
        raise ArtifactError(
            f"{folder} is not a model folder: it has no {CONFIG}",
            f"did you mean {final}?"
            if final.exists()
            else f"give the folder that holds {CONFIG} and {WEIGHTS}",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"cannot read {path}: {error}", "copy the model folder again") from error
    stored = _stored_header(folder / WEIGHTS)
    if readable.save != stored.save:  # a save was cut off after the weights: they know what they are
        return stored
    _compare_headers(path, readable, stored)
    return readable


class _Replacement:
    """A folder inside ``folder`` whose files take their places once all of them are on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.new = folder / f".saving-{os.getpid()}"

    def __enter__(self) -> Path:
        for left in self.folder.glob(".saving-*"):  # by a process that was killed
            if not _is_running(left.name.removeprefix(".saving-")):
                shutil.rmtree(left, ignore_errors=True)
        self.new.mkdir(exist_ok=True)
        return self.new

    def __exit__(self, *failure: object) -> None:
        try:
            if failure[0] is None:
                for path in self.new.iterdir():
                    sync(path)
                others = {path.name for path in self.new.iterdir()} - {WEIGHTS, CONFIG}
                for name in (*others, WEIGHTS, CONFIG):
                    (self.new / name).replace(self.folder / name)
                for name in {JOINT, SOURCE, TARGET} - others if others else ():  # of an older model
                    (self.folder / name).unlink(missing_ok=True)
                sync(self.folder)
        finally:
            shutil.rmtree(self.new, ignore_errors=True)


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def _may_write(folder: Path) -> bool:
    """It is new, empty, or holds a model of ours (or what a save that was cut off left)."""
    if not folder.exists():
        return True
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if CONFIG in names:
        return _is_ours((folder / CONFIG).read_bytes())
    if WEIGHTS in names:  # a first save that was cut off before its last file
        with suppress(ArtifactError):
            return bool(_stored_header(folder / WEIGHTS))
    cut_off = {name for name in names if name.startswith(".saving-")}
    return not names or (bool(cut_off) and names - cut_off <= {JOINT, SOURCE, TARGET})


def _is_ours(config: bytes) -> bool:
    try:
        return {"format", "transduce"} <= set(json.loads(config))
    except (ValueError, TypeError, RecursionError):
        return False


def _check_weights(model: Model, folder: Path) -> None:
    """What cannot be loaded is not saved."""
    if not isinstance(model, Model):
        raise TypeError(f"save takes a model of transduce, not a {type(model).__name__}")
    expected = _shapes(_empty(model.config, model.vocabulary))
    if unequal := [name for name, _ in expected.items() ^ _shapes(model).items()]:
        raise ArtifactError(
            f"cannot write {folder}: the model is not what its configuration says, the first difference is "
            f"{min(unequal)}",
            "save a model whose modules were not changed by hand",
        )


class _NothingDrawn(TorchFunctionMode):
    """Without it, torch loads its compiler, for more than a second, to draw numbers that are not there."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What is to have random numbers stays as it is."""
        kwargs = kwargs or {}
        return kwargs["tensor"] if function is nn.init.normal_ else function(*args, **kwargs)


def _empty(config: ModelConfig, vocabulary: Vocabulary | None) -> Model:
    """Shapes only: the weights come from elsewhere."""
    with torch.device("meta"), _NothingDrawn():
        return build(config, vocabulary)


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, under its first name: a shared matrix is one tensor."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def sync(path: Path) -> None:
    """See to it that a file or folder is on the disk, not only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse(text: str, path: Path) -> Header:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"cannot read {path}: {error}", "copy the model folder again") from error
    if not isinstance(data, dict) or "transduce" not in data:
        raise ArtifactError(f"{path} was not written by transduce", "check the path")
    found = data.get("format")
    if isinstance(found, int) and found > FORMAT:
        raise ArtifactError(
            f"{path} has format {found}, but this version reads up to {FORMAT}", "upgrade transduce"
        )
    try:
        return validate(Header, data, where=str(path))
    except ConfigError as error:
        raise ArtifactError(error.problem, error.remedy) from error


def _compare_headers(path: Path, readable: Header, stored: Header) -> None:
    """The same shapes can mean different models: pre- and post-norm, say."""
    for part in ("model", "vocabulary"):
        now, then = (dict(getattr(header, part) or {}) for header in (readable, stored))
        # The family comes first of a model's keys: of two families, the rest differs in any case.
        for key in (key for key in {**now, **then} if key not in FREE):
            if now.get(key) != then.get(key):
                raise ArtifactError(
                    f"{path} says {part}.{key} = {now.get(key)!r}, "
                    f"but the weights were saved with {then.get(key)!r}",
                    "set it back there, or save the model again",
                )


def _stored_header(path: Path) -> Header:
    with _reading(path), safe_open(path, framework="pt") as file:
        return _parse((file.metadata() or {}).get("transduce", "{}"), path)


def _read_weights(path: Path, expected: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    with _reading(path):
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            kinds = sorted({part.get_dtype() for part in slices.values()})
        _compare_shapes(path, expected, found)
        if len(kinds) != 1 or kinds[0] not in _FLOATS:
            raise ArtifactError(
                f"{path} holds {' and '.join(kinds)} numbers", "give weights in one floating type"
            )
        # Copies: the file stays mapped into memory otherwise, and a change to it would reach the model.
        weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            problem = f"{path} is damaged: some of {name} are no numbers"
            raise ArtifactError(problem, "copy the model folder again")
    return weights


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What can be wrong with the weights' file, said plainly."""
    try:
        with path.open("rb"):  # safetensors calls a file it may not read missing
            yield
    except FileNotFoundError:
        raise ArtifactError(f"{path.parent} has no {WEIGHTS}", "copy the model folder again, whole") from None
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}", "check your rights") from error
    except SafetensorError as error:
        raise ArtifactError(f"{path} is damaged: {error}", "copy the model folder again") from error


def _compare_shapes(
    path: Path, expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]
) -> None:
    remedy = "copy the model folder again"
    for name in sorted(expected.keys() - found.keys()):
        raise ArtifactError(f"{path} lacks {name}, which its configuration calls for", remedy)
    for name in sorted(found.keys() - expected.keys()):
        raise ArtifactError(f"{path} has {name}, which its configuration does not call for", remedy)
    for name, shape in expected.items():
        if found[name] != shape:
            raise ArtifactError(
                f"{path}: {name} is {found[name]}, but its configuration calls for {shape}", remedy
            )
