"""Open models, embed sentences, and export models."""
