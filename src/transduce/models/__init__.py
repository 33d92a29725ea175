"""Families that assemble the blocks of `transduce.nn`, and define none."""
