"""WordPiece as BERT uses it: words split at spaces and punctuation, ``##`` before pieces inside a word."""

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

MAX_TOKENS = 10_000_000  # the largest vocabulary of a model; see `config.settings.Count`
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def wordpiece_of(tokens: list[str], *, lowercase: bool) -> Backend:
    """Build a WordPiece tokenizer from its tokens; BERT's special tokens must be among them."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if missing := [token for token in BERT_SPECIAL if token not in vocabulary]:
        raise ValueError(f"the token {missing[0]} is missing")
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([AddedToken(token, special=True) for token in BERT_SPECIAL])
    backend.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return backend


def wordpiece_from_text(text: str) -> Backend:
    """Build a WordPiece tokenizer from the text of a ``vocab.txt``: one token per line."""
    if text.count("\n") > MAX_TOKENS:
        raise ValueError(f"it has more than {MAX_TOKENS:,} lines")
    tokens = text.removesuffix("\n").split("\n")
    cased = any(token.isalpha() and token != token.lower() for token in tokens)
    return wordpiece_of(tokens, lowercase=not cased)
