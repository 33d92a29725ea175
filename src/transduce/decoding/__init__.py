"""Decoding: from a model to text. It sees models through `transduce.models.protocol` alone."""
