"""What is learned: one module per objective."""
