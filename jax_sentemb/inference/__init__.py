"""Opens models, embeds sentences, and exports models."""
