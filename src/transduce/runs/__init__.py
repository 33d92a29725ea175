"""From files to a trained model folder."""
