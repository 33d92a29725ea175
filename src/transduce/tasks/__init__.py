"""Bundled tasks that need no download: pairs of texts, made on the spot."""
