"""Text and images to batches: files, tokenizers, prepared corpora, and checks of them."""
