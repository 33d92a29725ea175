"""Attention and beam search of a sentence, attention heads over a corpus, attention over an image."""
