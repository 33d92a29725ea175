"""How good a model is: what its translations are worth, and how likely it finds given ones."""
