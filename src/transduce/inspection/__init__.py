"""Seeing inside a model: what its heads attend to, what its search looked at."""
