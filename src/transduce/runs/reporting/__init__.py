"""What a run shows while it goes and leaves behind."""
