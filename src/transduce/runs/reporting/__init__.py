"""What a run shows and writes about itself: progress, curves, model cards, experiment tracking."""
