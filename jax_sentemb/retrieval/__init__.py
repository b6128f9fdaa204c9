"""Vectors on disk, similarity search and clusters."""
