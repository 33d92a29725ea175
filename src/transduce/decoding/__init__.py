"""From a model to text: it sees models through `transduce.models.protocol` alone."""
