"""Saving and loading a model folder."""

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Literal, overload

from safetensors import SafetensorError

from transduce.artifact.adapter import load_merged
from transduce.artifact.adapter_header import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    base_folder,
    is_adapter,
    read_adapter_header,
)
from transduce.artifact.header import (
    CONFIG,
    FORMAT,
    INT8_FORMAT,
    Header,
    read_header,
    read_model,
    read_stored_header,
)
from transduce.artifact.weights import (
    COPY_AGAIN,
    WEIGHTS,
    assemble,
    expected_shapes,
    shapes_of,
    write_weights,
)
from transduce.config import RNNConfig, TransformerConfig, Vocabulary
from transduce.data.tokenizer import FACTORS, JOINT, SOURCE, TARGET, TOKENIZER_FILES, TokenizerPair
from transduce.engine.precision import choose_device, to_precision
from transduce.errors import ArtifactError, reason_of, remedy_for_writing
from transduce.files import folder_path, hash_file, read_small, real_path, sync, user_path
from transduce.machine import avoid_broken_amx
from transduce.models.bert import BERT
from transduce.models.build import TextToText
from transduce.models.gpt import GPT
from transduce.models.protocol import Model, Precision
from transduce.models.rnn import RNN
from transduce.models.transformer import Transformer
from transduce.models.vit import ViT

TOKENIZERS = {JOINT, SOURCE, TARGET}
_TEXT_FILES = set(TOKENIZER_FILES)
_TEMPORARY = ".saving-"  # followed by the process id
_COMMANDS = {"gpt": "transduce lm train", "bert": "transduce mlm train", "vit": "transduce vision train"}


def save(
    model: Model,
    folder: str | Path,
    tokenizer: TokenizerPair | None = None,
    *,
    longest_source: int | None = None,
    int8: bool = False,
) -> None:
    """Write a model folder.

    A model that is already there is replaced completely or, on an error, not at all. Other files stay.

    Args:
        model: A model of any family, in any floating-point type.
        folder: A new or empty folder, or a model folder.
        tokenizer: Saved with the model; without one, the folder cannot be used to translate or generate text.
        longest_source: Length in tokens of the longest source the model was trained on, if known.
        int8: Round matrices to 8 bits: a quarter of the size, for inference only.

    """
    folder = folder_path(folder)
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps the model
    _check_shapes(model, folder)
    if tokenizer is not None and model.vocabulary is not None:
        _require_fit(tokenizer.vocabulary, model.vocabulary, folder, "give the model's own tokenizer")
    try:
        if not _may_write(folder):
            raise ArtifactError(f"{folder} exists and is not a model folder", "choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        with _Replacement(folder) as new:
            if tokenizer is not None:
                tokenizer.save(new)
            text = _make_header(model, longest_source, folder if tokenizer is None else new, int8)
            (new / CONFIG).write_text(text, encoding="utf-8")
            write_weights(model, new / WEIGHTS, text, int8)
            # safetensors makes the file readable for its owner only; the umask should decide.
            (new / WEIGHTS).chmod((new / CONFIG).stat().st_mode)
    except (OSError, SafetensorError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        unchanged = " (the model in the folder is unchanged)" if (folder / WEIGHTS).exists() else ""
        raise ArtifactError(
            f"cannot write {folder}: {reason}{unchanged}", remedy_for_writing(error)
        ) from error


def _make_header(model: Model, longest_source: int | None, text_files: Path, int8: bool) -> str:
    """Return the content of ``config.json`` for a model with the tokenizer in the folder ``text_files``."""
    present = [text_files / name for name in sorted(_TEXT_FILES) if (text_files / name).exists()]
    header = Header(
        format=INT8_FORMAT if int8 else FORMAT,
        transduce=version("transduce"),
        save=uuid.uuid4().hex,
        model=model.config,
        vocabulary=model.vocabulary,
        longest_source=longest_source,
        weights="int8" if int8 else None,
        files={path.name: hash_file(path) for path in present},
    )
    return header.model_dump_json(indent=2, exclude_none=True) + "\n"


def load(folder: str | Path, *, precision: Precision = "float32", device: str = "cpu") -> Model:
    """Load the model of a model folder, in evaluation mode.

    The result is a ``torch.nn.Module`` for your own code. By default it is on the CPU, and its weights are as
    they were saved, so that it can be trained. In any precision but ``float32`` it is for inference only.
    To translate, use `transduce.Translator`, which chooses the fastest device and precision by default.
    An adapter folder is loaded with the model it belongs to, merged into one model in float32.
    """
    avoid_broken_amx()  # must run before anything is computed
    folder = folder_path(folder)
    if is_adapter(folder):
        model = load_merged(folder)
    else:
        header = read_header(folder)
        model = assemble(header.model, header.vocabulary, read_model(folder, header))
    model = model.to(choose_device(device))
    return model if precision == "float32" else to_precision(model, precision)


@overload
def load_as(folder: str | Path, family: Literal["gpt"]) -> GPT: ...
@overload
def load_as(folder: str | Path, family: Literal["bert"]) -> BERT: ...
@overload
def load_as(folder: str | Path, family: Literal["vit"]) -> ViT: ...
def load_as(folder: str | Path, family: Literal["gpt", "bert", "vit"]) -> Model:
    """Load a model that must be of one family, on the CPU and with its weights as they were saved."""
    model = load(folder)
    if model.config.family != family:
        raise ArtifactError(
            f"{folder} holds a model of family {model.config.family!r}, but this needs a {family!r} model",
            f"give a model folder made by: {_COMMANDS[family]}",
        )
    return model


def load_text_to_text(folder: str | Path) -> TextToText:
    """Load a model that must be able to translate, on the CPU and with its weights as they were saved."""
    model = load(folder)
    if not isinstance(model, Transformer | RNN):
        raise ArtifactError(
            f"{folder} holds a model of family {model.config.family!r}, which cannot translate",
            "give the folder of a transformer or rnn model",
        )
    return model


def load_tokenizer(folder: str | Path) -> TokenizerPair:
    """Load the tokenizer of a model folder; for an adapter folder, that of the model it belongs to."""
    folder = folder_path(folder)
    if is_adapter(folder):
        folder = base_folder(folder, read_adapter_header(folder))
    header = read_header(folder)
    vocabulary, model = header.vocabulary, header.model
    factors = model.source_factors if isinstance(model, TransformerConfig | RNNConfig) else []
    _require_intact(folder, header.files)
    if not any((folder / name).exists() for name in TOKENIZERS):
        raise ArtifactError(
            f"{folder} has a model but no tokenizer",
            "save them together: transduce.save(model, folder, tokenizer)",
        )
    tokenizer = TokenizerPair.load(folder)
    if vocabulary is not None:
        _require_fit(tokenizer.vocabulary, vocabulary, folder, "restore the tokenizer of this model")
    if [*map(len, tokenizer.factors)] != factors:
        raise ArtifactError(
            f"{folder / FACTORS} does not fit the model, which has {len(factors)} source factors",
            "copy the whole model folder again",
        )
    return tokenizer


def _require_intact(folder: Path, hashes: Mapping[str, str]) -> None:
    """Refuse a tokenizer whose files are not those that were saved with the model."""
    for name in sorted(_TEXT_FILES):
        path = folder / name
        if name not in hashes:
            if hashes and path.exists():
                raise ArtifactError(f"{path} was not saved with this model", "remove it")
            continue
        if not path.is_file():
            raise ArtifactError(f"{path} is missing, or not a file", COPY_AGAIN)
        if hash_file(path) != hashes[name]:
            raise ArtifactError(f"{path} is damaged: its content does not have the stored hash", COPY_AGAIN)


def is_part_of_a_model(path: Path) -> bool:
    """Return whether a file belongs to a model folder, and so must not be overwritten."""
    path = real_path(user_path(path))
    if path.name in {ADAPTER, ADAPTER_WEIGHTS}:
        return is_adapter(path.parent)
    return path.name in {CONFIG, WEIGHTS, *_TEXT_FILES} and (path.parent / WEIGHTS).exists()


class _Replacement:
    """A temporary folder inside ``folder`` whose files move to ``folder`` when all of them are on disk.

    The weights move before ``config.json`` and after everything else: they contain their own header, so that
    their renaming is the moment at which the new model replaces the old one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.new = folder / f"{_TEMPORARY}{os.getpid()}"

    def __enter__(self) -> Path:
        for path in self.folder.glob(f"{_TEMPORARY}*"):  # of processes that were killed
            if not _is_running(path.name.removeprefix(_TEMPORARY)):
                shutil.rmtree(path, ignore_errors=True)
        self.new.mkdir(exist_ok=True)
        return self.new

    def __exit__(self, *failure: object) -> None:
        try:
            if failure[0] is None:
                self._move_files()
        finally:
            shutil.rmtree(self.new, ignore_errors=True)

    def _move_files(self) -> None:
        paths = list(self.new.iterdir())
        for path in paths:
            sync(path)
        tokenizers = {path.name for path in paths} - {WEIGHTS, CONFIG}
        for name in (*tokenizers, WEIGHTS, CONFIG):
            (self.new / name).replace(self.folder / name)
        if tokenizers:
            for name in _TEXT_FILES - tokenizers:  # of the old model
                (self.folder / name).unlink(missing_ok=True)
        sync(self.folder)


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass  # a process of another user
    return True


def _may_write(folder: Path) -> bool:
    """Return whether a folder is new, empty, or holds a model (or the rest of an interrupted save)."""
    if not folder.exists():
        return True
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if CONFIG in names:
        return _is_ours(read_small(folder / CONFIG))
    if WEIGHTS in names:  # a first save that was interrupted before it wrote config.json
        with suppress(ArtifactError):
            return bool(read_stored_header(folder / WEIGHTS))
    interrupted = {name for name in names if name.startswith(_TEMPORARY)}
    return not names or (bool(interrupted) and names - interrupted <= _TEXT_FILES)


def _is_ours(config: bytes) -> bool:
    try:
        return {"format", "transduce"} <= set(json.loads(config))
    except (ValueError, TypeError, RecursionError):
        return False


def _check_shapes(model: Model, folder: Path) -> None:
    """Refuse to save a model that could not be loaded again."""
    if not isinstance(model, Model):
        raise TypeError(f"save takes a model of transduce, not a {type(model).__name__}")
    expected = expected_shapes(model.config, model.vocabulary)
    if different := [name for name, _ in expected.items() ^ shapes_of(model).items()]:
        raise ArtifactError(
            f"cannot write {folder}: the model's parameters do not match its configuration, for example "
            f"{min(different)}",
            "save a model whose modules have not been replaced",
        )


def _require_fit(tokenizer: Vocabulary, model: Vocabulary, folder: Path, remedy: str) -> None:
    """Refuse a tokenizer whose ids the model would misread; a model may have more ids than tokens."""
    if tokenizer.source > model.source or tokenizer.target > model.target:
        raise ArtifactError(
            f"{folder} has a tokenizer with {_sizes(tokenizer)} tokens, but a model with {_sizes(model)}",
            remedy,
        )
    for name in ("pad", "bos", "eos"):
        ours, theirs = getattr(model, name), getattr(tokenizer, name)
        if ours != theirs:
            raise ArtifactError(
                f"{folder} has a tokenizer in which {name} is {theirs}, but a model in which it is {ours}",
                remedy,
            )


def _sizes(vocabulary: Vocabulary) -> str:
    sizes = dict.fromkeys((vocabulary.source, vocabulary.target))
    return " and ".join(f"{size:,}" for size in sizes)
