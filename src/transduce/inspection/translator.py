"""The translator of the public interface: one that can be looked into."""

from transduce.decoding import translator
from transduce.inspection.capture import inspect
from transduce.inspection.inspection import Inspection


class Translator(translator.Translator):
    """A model and its tokenizer, and how targets are looked for."""

    def inspect(self, source: str, target: str | None = None) -> Inspection:
        """See `transduce.inspection.capture.inspect`."""
        return inspect(self, source, target)
