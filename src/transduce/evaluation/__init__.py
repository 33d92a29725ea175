"""Metrics of translations, log-probabilities of given targets, and perplexity of text."""
