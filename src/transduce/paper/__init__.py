"""The paper's claims, each a check that returns what it measured."""
