"""Embeddings of whole data sets in fixed shapes, similarity scores against human judgements, and signs of collapse."""
