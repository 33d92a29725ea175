"""Special tokens of language models in folders of Hugging Face transformers.

Their ids are in ``config.json`` or ``generation_config.json``, their names in the tokenizer's files; what is
put in front of a prompt is the tokenizer's post-processor.
"""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from transduce.config import Vocabulary, validate
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.tokenizer_guard import guarded
from transduce.errors import ArtifactError, ConfigError, DataError
from transduce.files import user_path
from transduce.interop.hugging_face import named_token, read_object, read_side
from transduce.models.protocol import Model

GENERATION, TOKENIZER_CONFIG = "generation_config.json", "tokenizer_config.json"


def gpt_vocabulary(fields: Mapping[str, Any], folder: str | Path) -> Vocabulary:
    """Return the sizes and special tokens of a language model.

    GPT-2 has one special token, its last, which begins and ends texts and pads them. Where the tokens for the
    beginning and the end differ, padding needs a third one, which may be any special token that no text has.
    """
    folder, size = user_path(folder), fields["vocab_size"]
    tables = [fields, read_object(folder / GENERATION)]
    side = read_side(folder)

    def candidates(name: str) -> Iterator[int]:
        """Yield the ids that the folder gives a special token; of several, the tokenizer's is the first."""
        text = named_token(folder, f"{name}_token")
        named = None if side is None or text is None else side.id_of(text)
        for table in tables:
            value = table.get(f"{name}_token_id")
            ids = value if isinstance(value, list) else [value]
            yield from [named] if named in ids and named is not None else []
            yield from (token for token in ids if type(token) is int and 0 <= token < size)
        yield from [] if named is None else [named]

    eos = next(candidates("eos"), size - 1)
    bos = next(candidates("bos"), eos)
    spare = [*candidates("pad")]
    if bos != eos:
        others = [] if side is None else [token for token in side.special if token < size]
        unknown = [*candidates("unk")]
        spare = [*spare, *(token for token in others if token not in unknown), *others, *unknown]
        spare = [token for token in spare if token not in (bos, eos)]
        if not spare:
            raise ConfigError(
                f"bos_token_id {bos} and eos_token_id {eos} differ, and no other special token is left for "
                "padding",
                "set another pad_token_id in config.json",
            )
    pad = spare[0] if spare else eos
    data = {"source": size, "target": size, "pad": pad, "bos": bos, "eos": eos}
    return validate(Vocabulary, data, where=f"the special tokens in {folder}")


def declare(folder: Path, side: SideTokenizer, model: Model) -> SpecialTokens | None:
    """Return the special tokens of an imported model, unless our usual reading of their names gives them."""
    vocabulary = model.vocabulary
    if vocabulary is None:
        return None
    names = {name: side.token_at(getattr(vocabulary, name)) for name in ("pad", "bos", "eos")}
    if missing := [name for name, text in names.items() if text is None]:
        raise ArtifactError(
            f"the tokenizer in {folder} has no token {getattr(vocabulary, missing[0])}, "
            f"the model's {missing[0]}",
            "copy the folder again",
        )
    prefix = prompt_prefix(folder, side, str(names["bos"])) if model.config.family == "gpt" else []
    data = {**names, "source_prefix": prefix}
    special = validate(SpecialTokens, data, where=f"the special tokens in {folder}")
    if model.config.family == "gpt":
        return special
    try:
        usual = TokenizerPair(side, side).vocabulary
    except (DataError, ConfigError, ValueError):
        return special
    same = all(getattr(usual, name) == getattr(vocabulary, name) for name in names)
    return None if same else special


def prompt_prefix(folder: Path, side: SideTokenizer, bos: str) -> list[str]:
    """Return the names of the tokens that their tokenizer puts in front of every text."""
    with guarded(str(folder), "fails to encode a text", muted=True):
        encoding = side.backend.encode("a", add_special_tokens=True)
    pairs = zip(encoding.tokens, encoding.special_tokens_mask, strict=True)
    prefix = [token for token, _ in takewhile(lambda pair: pair[1] == 1, pairs)]
    adds_bos = read_object(folder / TOKENIZER_CONFIG).get("add_bos_token") is True
    return prefix or ([bos] if adds_bos else [])
