"""Files of a vocabulary: the tokens of one side, in the order of their ids."""

from pathlib import Path

from transduce.errors import ArtifactError
from transduce.files import read_json, read_text

_LARGEST = 1 << 28  # bytes
_REMEDY = "give a JSON object of tokens and ids, a JSON list of tokens, or a text file with a token per line"


def read_vocabulary(path: Path) -> list[str]:
    """Read tokens in the order of their ids: JSON (token → id, or a list), or text with a token per line."""
    if path.suffix != ".json":
        return read_token_lines(path)
    content = read_json(path, limit=_LARGEST, remedy=_REMEDY)
    if isinstance(content, dict) and content and all(isinstance(number, int) for number in content.values()):
        tokens = sorted(content, key=content.__getitem__)
        if [content[token] for token in tokens] == list(range(len(tokens))):
            return tokens
        raise ArtifactError(f"{path} has ids that are missing or repeated", _REMEDY)
    if not isinstance(content, list) or not content or not all(isinstance(each, str) for each in content):
        raise ArtifactError(f"{path} is not a vocabulary", _REMEDY)
    return content


def read_token_lines(path: Path) -> list[str]:
    """Read a text file with a token per line."""
    text = read_text(path, limit=_LARGEST, remedy=_REMEDY)
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
