"""The paper's blocks: torch only, plain arguments, one concept per file."""
