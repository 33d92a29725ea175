"""Exports that copy a SentencePiece model need the one that the model's tokenizer was read from."""

from pathlib import Path

from tokenizers import Tokenizer

from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.tokenizer import TokenizerPair
from transduce.errors import ArtifactError


def require_read_from(sentencepiece: Path, tokenizer: TokenizerPair, otherwise: str) -> None:
    """Refuse a tokenizer, of either side, that did not come from this SentencePiece model.

    ``otherwise`` says what holds for models that have no such file.
    """
    read = settled(read_sentencepiece(sentencepiece))
    if any(settled(side.backend) != read for side in (tokenizer.source, tokenizer.target)):
        raise ArtifactError(
            f"the model's tokenizer was not read from {sentencepiece}",
            f"give the SentencePiece model of an imported model; {otherwise}",
        )


def settled(backend: Tokenizer) -> str:
    """Return a tokenizer as text, with numbers as they are after they have been written and read once."""
    copy = Tokenizer.from_str(backend.to_str())
    copy.encode_special_tokens = False
    return Tokenizer.from_str(copy.to_str()).to_str()
