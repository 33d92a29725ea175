"""From a model folder to HTTP: texts and documents in, translations out."""
