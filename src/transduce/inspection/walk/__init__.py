"""The data of a page that follows one sentence through a Transformer, every number real."""
