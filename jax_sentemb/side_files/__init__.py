"""Decide which settings in the files of a model directory are used, harmless, or refused."""
