"""What a model says of a whole text or image: words for masks, vectors, classes."""
