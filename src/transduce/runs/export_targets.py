"""The formats to export to: how each is written, and how it is compared. A new format is one entry."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from transduce.data.special_tokens import TARGET_LANGUAGE
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ConfigError
from transduce.interop.peer import Peer
from transduce.models.gpt import GPT
from transduce.models.protocol import Model
from transduce.models.transformer import Transformer
from transduce.runs.parity import Parity

Tokenizer: TypeAlias = TokenizerPair | None
# model, tokenizer, new folder, quantization, SentencePiece model of the tokenizer → notes
Write = Callable[[Model, Tokenizer, Path, str | None, Path | None], list[str]]
OpenPeer = Callable[[Transformer, TokenizerPair, Path, str | None], Peer]
# model, tokenizer, folder, quantization → what was compared
Verify = Callable[[Model, Tokenizer, Path, str | None], Parity]

_AMD = (
    "on AMD processors ctranslate2 computes int8 and int16 wrongly unless the environment has CT2_USE_MKL=1"
)


@dataclass(frozen=True)
class Target:
    """A format: ``write`` returns notes for the user; ``peer`` loads a Transformer that was written.

    ``verify`` compares in another way, and returns what it compared: other families, and formats whose
    library is not there to be asked.
    """

    write: Write
    peer: OpenPeer | None = None
    verify: Verify | None = None
    quantizations: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()  # quantizations with the note about AMD processors

    def notes(self, quantize: str | None) -> list[str]:
        """Return what the user should know about this quantization."""
        return [_AMD] if quantize in self.warned else []


def _transformer(model: Model, format_name: str) -> Transformer:
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"a model of family {model.config.family!r} cannot be exported to {format_name}",
            "give the folder of a transformer model, or use --to huggingface",
        )
    return model


def _write_ctranslate2(
    model: Model,
    tokenizer: TokenizerPair | None,
    folder: Path,
    quantize: str | None,
    sentencepiece: Path | None,
) -> list[str]:
    from transduce.interop.ctranslate2 import Quantization, adds_end, export_ctranslate2

    quantization = cast("Quantization | None", quantize)
    export_ctranslate2(_transformer(model, "ctranslate2"), folder, tokenizer, quantization=quantization)
    if tokenizer is None:
        return []
    before, after, first = (
        [str(side.token_at(token)) for token in ids]
        for side, ids in (
            (tokenizer.source, tokenizer.source_prefix),
            (tokenizer.source, tokenizer.source_suffix),
            (tokenizer.target, tokenizer.target_prefix),
        )
    )
    notes = []
    if not adds_end(tokenizer):
        notes.append(
            f"ctranslate2 adds nothing to a source: give it {before} before and {after} after its tokens"
        )
    if first:
        notes.append(f"every target begins with {first}: give ctranslate2 that as target_prefix")
    return notes


def _open_ctranslate2(
    model: Transformer, tokenizer: TokenizerPair, folder: Path, quantize: str | None
) -> Peer:
    from transduce.interop.ctranslate2_peer import CTranslate2Peer

    return CTranslate2Peer(folder, model, tokenizer, "default" if quantize else "float32")


def _write_onnx(
    model: Model,
    tokenizer: TokenizerPair | None,
    folder: Path,
    quantize: str | None,
    sentencepiece: Path | None,
) -> list[str]:
    from transduce.interop.onnx import export_onnx

    given = model if isinstance(model, GPT) else _transformer(model, "onnx")
    export_onnx(given, folder, tokenizer, quantization=quantize)
    return []


def _open_onnx(model: Transformer, tokenizer: TokenizerPair, folder: Path, quantize: str | None) -> Peer:
    from transduce.runs.onnx_peer import OnnxPeer

    return OnnxPeer(folder, model)


def _verify_onnx(model: Model, tokenizer: Tokenizer, folder: Path, quantize: str | None) -> Parity:
    from transduce.runs.onnx_text_check import verify_text_model

    assert isinstance(model, GPT)  # noqa: S101 (no others are written)
    return verify_text_model(model, folder, rounded=quantize is not None)


def _write_hugging_face(
    model: Model,
    tokenizer: TokenizerPair | None,
    folder: Path,
    quantize: str | None,
    sentencepiece: Path | None,
) -> list[str]:
    from transduce.interop.hugging_face_export import export_hugging_face

    export_hugging_face(model, tokenizer, folder)
    return []


def _open_hugging_face(
    model: Transformer, tokenizer: TokenizerPair, folder: Path, quantize: str | None
) -> Peer:
    from transduce.interop.hugging_face_peer import HuggingFacePeer

    named = tokenizer.special is not None and tokenizer.special.source_prefix == [TARGET_LANGUAGE]
    language = tokenizer.source.token_at(tokenizer.source_prefix[0]) if named else None
    return HuggingFacePeer(folder, language or "")


def _verify_hugging_face(model: Model, tokenizer: Tokenizer, folder: Path, quantize: str | None) -> Parity:
    from transduce.runs.hugging_face_check import verify_hugging_face

    return verify_hugging_face(model, tokenizer, folder)


def _write_marian(
    model: Model,
    tokenizer: TokenizerPair | None,
    folder: Path,
    quantize: str | None,
    sentencepiece: Path | None,
) -> list[str]:
    from transduce.interop.marian_export import export_marian_file

    transformer = _transformer(model, "marian")
    assert tokenizer is not None  # noqa: S101 (a Transformer's folder has one)
    return export_marian_file(transformer, folder, tokenizer, sentencepiece)


def _verify_marian(model: Model, tokenizer: Tokenizer, folder: Path, quantize: str | None) -> Parity:
    from transduce.interop.marian_export import verify_marian_file

    return Parity(verify_marian_file(_transformer(model, "marian"), folder))


TARGETS: dict[str, Target] = {
    "huggingface": Target(write=_write_hugging_face, peer=_open_hugging_face, verify=_verify_hugging_face),
    "ctranslate2": Target(
        write=_write_ctranslate2,
        peer=_open_ctranslate2,
        quantizations=("int8", "int8_float32", "int16", "float16", "bfloat16"),
        warned=("int8", "int8_float32", "int16"),
    ),
    "onnx": Target(write=_write_onnx, peer=_open_onnx, verify=_verify_onnx, quantizations=("int8",)),
    "marian": Target(write=_write_marian, verify=_verify_marian),
}
