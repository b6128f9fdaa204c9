"""From a model directory to embeddings."""
