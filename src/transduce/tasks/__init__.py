"""Bundled tasks that need no download: pairs of texts, generated on demand."""
