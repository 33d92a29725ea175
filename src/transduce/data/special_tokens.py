"""How a model's sequences begin and end, where the names of its tokens do not say it."""

from pathlib import Path

from pydantic import Field, model_validator

from transduce.config import Settings, validate
from transduce.errors import DataError
from transduce.files import read_json

SPECIAL_TOKENS = "special_tokens.json"
SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source_language}", "{target_language}"


class SpecialTokens(Settings):
    """The content of ``special_tokens.json``; all tokens are given by their names.

    Prefixes and suffixes may contain ``{source_language}`` and ``{target_language}``, which stand for the
    tokens of the chosen languages.
    """

    pad: str = Field(description="Token that fills up shorter rows of a batch.")
    bos: str = Field(description="Token that the decoder reads first; may be the padding token.")
    eos: str = Field(description="Token with which a target ends.")
    source_prefix: list[str] = Field(default=[], description="Tokens before a source.")
    source_suffix: list[str] | None = Field(default=None, description="Tokens after a source; eos if unset.")
    target_prefix: list[str] = Field(
        default=[], description="Tokens with which every target begins, after bos."
    )
    languages: dict[str, str] = Field(default={}, description="Codes of languages and their tokens.")
    source_language: str | None = Field(default=None, description="Code of the source's language.")
    target_language: str | None = Field(default=None, description="Code of the target's language.")

    @model_validator(mode="after")
    def _check(self) -> "SpecialTokens":
        chosen = {SOURCE_LANGUAGE: self.source_language, TARGET_LANGUAGE: self.target_language}
        for placeholder, code in chosen.items():
            # A side with one language needs no token for it.
            if code is not None and code not in self.languages and self.tells(placeholder):
                raise ValueError(f"language {code!r} has no token; add it to languages")
        return self

    def tells(self, placeholder: str) -> bool:
        """Return whether a token tells the model this language: `SOURCE_LANGUAGE` or `TARGET_LANGUAGE`."""
        return placeholder in (*self.source_prefix, *(self.source_suffix or ()), *self.target_prefix)

    def named(self, tokens: list[str]) -> list[str]:
        """Replace the placeholders of languages by the tokens of those that are chosen."""
        chosen = {SOURCE_LANGUAGE: self.source_language, TARGET_LANGUAGE: self.target_language}
        names = []
        for token in tokens:
            code = chosen.get(token)
            if token in chosen and code is None:
                which = token.strip("{}").replace("_language", "")
                raise DataError(
                    f"the model translates several languages, but no {which} language was chosen",
                    f"choose one with --{which}-lang: {', '.join(sorted(self.languages)[:20])}",
                )
            names.append(token if code is None else self.languages[code])
        return names

    @property
    def directions(self) -> list[tuple[str | None, str | None]]:
        """The source and target languages between which the model translates; ``None`` if not known."""
        known: list[str | None] = [*self.languages] or [None]
        sources = [self.source_language] if self.source_language else known
        targets = [self.target_language] if self.target_language else known
        pairs = [(source, target) for source in sources for target in targets]
        return [(source, target) for source, target in pairs if source is None or source != target] or pairs

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text(self.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "SpecialTokens":
        """Read what `save` wrote."""
        fields = read_json(path, error=DataError, remedy="copy the model folder again")
        return validate(cls, fields, where=str(path))
