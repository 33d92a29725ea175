"""From model folders to HTTP: running batches, the languages that are served, the APIs, the page."""
