"""Training: the loop, and the objectives it minimizes."""
