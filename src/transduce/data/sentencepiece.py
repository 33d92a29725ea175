"""SentencePiece models as tokenizers of the ``tokenizers`` library, with SentencePiece's ids and pieces.

Known differences, all others are errors of ours:

- Unigram: of segmentations whose scores are equal but for rounding (such as of long runs of one character),
  another one may be chosen, since SentencePiece sums scores in 32 bits and the library in 64.
- Unigram: a text that spells out a control symbol (``</s>``) whose every two neighbouring characters also
  occur in ordinary pieces, or are all unknown, may be cut differently around that place.
- Decoding: in a run of byte pieces that is not valid UTF-8, every byte becomes U+FFFD; SentencePiece keeps
  the characters in it that are valid.
- A text that contains private-use characters from U+F0000 on, if the model has user-defined symbols that
  its normalization would change; decoding a text that contains U+FDD0 U+FDD1, which are noncharacters.

Models that cut at words, that put spaces behind words, or that change the text after decoding are refused.
"""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from transduce.data.sentencepiece_bpe import cuts_of_unreachable_pieces, merges_of
from transduce.data.sentencepiece_file import ModelType, PieceType, SentencePieceModel, read_model
from transduce.data.sentencepiece_normalizer import SPACE, any_of, literal, sentencepiece_normalizer
from transduce.data.tokenizer_guard import guarded
from transduce.errors import DataError

_REMEDY = "use a unigram or BPE model with SentencePiece's usual settings"
_SMALLEST_FLOAT = 2.0**-126  # SentencePiece's highest score, unless a piece has a higher one
_SYMBOL_PENALTY = 0.1
_LEADING = "\ufdd0\ufdd1"  # stands for a space at the beginning of a piece: noncharacters, in no text


def read_sentencepiece(path: str | Path) -> Tokenizer:
    """Return the tokenizer of a SentencePiece model file (``.model``, ``.spm``)."""
    return tokenizer_of(read_model(path), str(path))


def tokenizer_of(model: SentencePieceModel, name: str) -> Tokenizer:
    """Return the tokenizer of a SentencePiece model; ``name`` is its file, for error messages."""
    try:
        with guarded(name, "cannot be made a tokenizer", muted=True, remedy=_REMEDY):
            return _tokenizer(model)
    except ValueError as error:
        raise DataError(f"{name} cannot be used: {error}", _REMEDY) from error


def _tokenizer(model: SentencePieceModel) -> Tokenizer:
    if model.trainer.treat_whitespace_as_suffix:
        raise ValueError("it puts spaces behind words (treat_whitespace_as_suffix), which is not supported")
    if model.has_denormalizer:
        raise ValueError("it changes the text after decoding (denormalizer_spec), which is not supported")
    if model.trainer.model_type == ModelType.WORD:
        raise ValueError("it is a word model, which is not supported")
    is_unigram = model.trainer.model_type == ModelType.UNIGRAM
    tokenizer = _unigram(model) if is_unigram else _merging(model)
    symbols = model.texts(PieceType.USER_DEFINED)
    if normalizer := sentencepiece_normalizer(model.normalizer, symbols):
        tokenizer.normalizer = normalizer
    tokenizer.decoder = _decoder(model)
    return tokenizer


def _unigram(model: SentencePieceModel) -> Tokenizer:
    scores = [piece.score for piece in model.pieces if piece.type == PieceType.NORMAL]
    if not scores:
        raise ValueError("it has no pieces but special ones")
    lowest, highest = min(scores), max(_SMALLEST_FLOAT, *scores)
    vocabulary = []
    for text, score, kind in model.pieces:
        if kind == PieceType.NORMAL:
            vocabulary.append((text, score))
        elif kind == PieceType.USER_DEFINED:  # preferred to everything else
            vocabulary.append((text, len(text.encode()) * highest - _SYMBOL_PENALTY))
        else:  # must not lower the score of unknown characters, which follows from the lowest
            vocabulary.append((text, lowest))
    fallback = model.trainer.byte_fallback
    tokenizer = Tokenizer(models.Unigram(vocabulary, model.unknown, byte_fallback=fallback))
    # The library would find special pieces in a text; so the text is cut where one is spelled out.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_cuts(model)), "isolated")
    return tokenizer


def _cuts(model: SentencePieceModel) -> str:
    """Return a regular expression for places inside of special pieces where no other piece crosses."""
    ordinary = model.texts(PieceType.NORMAL, PieceType.USER_DEFINED)
    joined, single = "\0".join(ordinary), {text for text in ordinary if len(text) == 1}
    is_known = single.__contains__ if not model.trainer.byte_fallback else bool

    def cut(text: str) -> tuple[int, bool]:
        """Return the best place (crossed by few pieces, not between unknowns) and whether it is perfect."""
        pairs = [text[at : at + 2] for at in range(len(text) - 1)]
        costs = [(joined.count(pair), not any(map(is_known, pair))) for pair in pairs]
        return 1 + costs.index(min(costs)), min(costs) == (0, False)

    expressions = []
    for text, _, kind in model.pieces:
        if kind in {PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.BYTE}:
            continue
        at, is_perfect = cut(text) if len(text) > 1 else (0, False)
        if not at or (kind == PieceType.UNUSED and not is_perfect):
            raise ValueError(f"it has the {kind.name.lower()} piece {text!r}, which is not supported")
        expressions.append(f"(?<={literal(text[:at])})(?={literal(text[at:])})")
    if model.trainer.byte_fallback:
        at, _ = cut("<0x")
        expressions.append(f"(?<={'<0x'[:at]})(?={'<0x'[at:]}[0-9A-F]{{2}}>)")
    return "|".join(expressions)


def _merging(model: SentencePieceModel) -> Tokenizer:
    """Return a BPE tokenizer; a model of characters is one without merges."""
    if model.texts(PieceType.UNUSED):
        raise ValueError("it has unused pieces, which are not supported in BPE models")
    if any(len(text) == 1 for text in model.texts(PieceType.CONTROL, PieceType.UNKNOWN)):
        raise ValueError("it has a special piece of one character, which is not supported")
    symbols = model.texts(PieceType.USER_DEFINED)
    merges = merges_of(model) if model.trainer.model_type == ModelType.BPE else []

    def tokenizer(ignore_merges: bool) -> Tokenizer:
        return Tokenizer(
            models.BPE(
                {piece.text: number for number, piece in enumerate(model.pieces)},
                merges,
                unk_token=model.pieces[model.unknown].text,
                fuse_unk=True,
                byte_fallback=model.trainer.byte_fallback,
                ignore_merges=ignore_merges,
            )
        )

    plain = tokenizer(ignore_merges=False)
    if not symbols:
        return plain
    # A symbol is cut out, and is then found as a whole. Other pieces that only would be found as a whole,
    # because no merges lead to them, have to be cut where merges leave them.
    cuts = [Regex(any_of(symbols)), *(Regex(cut) for cut in cuts_of_unreachable_pieces(plain, model))]
    whole = tokenizer(ignore_merges=True)
    whole.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(cut, "isolated") for cut in cuts])
    return whole


def _decoder(model: SentencePieceModel) -> decoders.Decoder:
    """Return SentencePiece's decoding: control symbols vanish, and so do spaces at the beginning."""
    spec = model.normalizer
    unknown = model.pieces[model.unknown].text
    steps: list[decoders.Decoder] = [
        decoders.Replace(Regex(rf"\A{literal(unknown)}\z"), model.trainer.unk_surface),
    ]
    if controls := model.texts(PieceType.CONTROL):
        steps.append(decoders.Replace(Regex(rf"\A(?:{any_of(controls)})\z"), ""))
    leading: Sequence[str] = ()
    if spec.remove_extra_whitespaces:
        leading = (rf"\A(?:{literal(_LEADING)})+",)
    elif spec.add_dummy_prefix:
        leading = (rf"\A{literal(_LEADING)}",)
    if leading:
        steps.append(decoders.Replace(Regex(rf"\A{literal(SPACE)}"), _LEADING))
    steps.append(decoders.Replace(SPACE, " "))
    if model.trainer.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    for expression in leading:
        steps += [decoders.Replace(Regex(expression), ""), decoders.Replace(_LEADING, " ")]
    return decoders.Sequence(steps)
