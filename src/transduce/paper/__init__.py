"""Checks of the paper's claims, each with the measured value."""
