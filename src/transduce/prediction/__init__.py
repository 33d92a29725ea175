"""Predictions about whole texts and images: masked tokens, embeddings, classes."""
