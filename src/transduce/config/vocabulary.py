"""What a model needs to know of its tokenizer."""

from pydantic import Field, model_validator

from transduce.config.settings import Count, Id, Settings


class Vocabulary(Settings):
    """The sizes of a model's vocabularies and its special tokens."""

    source: Count = Field(description="Number of source tokens.")
    target: Count = Field(description="Number of target tokens.")
    pad: Id = Field(default=0, description="Token that fills up shorter rows of a batch.")
    bos: Id = Field(default=1, description="Token with which a target begins.")
    eos: Id = Field(default=2, description="Token with which a source or target ends.")

    @model_validator(mode="after")
    def _check(self) -> "Vocabulary":
        for name, token in (("pad", self.pad), ("bos", self.bos), ("eos", self.eos)):
            if token >= self.target or (name == "pad" and token >= self.source):
                raise ValueError(
                    f"{name} is token {token}, which is not in the vocabulary; choose a smaller number"
                )
        # GPT-2's vocabulary has a single special token; that is no problem, because GPT masks no padding.
        if self.pad in (self.bos, self.eos) and not self.pad == self.bos == self.eos:
            raise ValueError(
                f"pad is token {self.pad}, like another special token, which would be masked; choose another"
            )
        return self
