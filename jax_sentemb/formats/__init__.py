"""Formats on disk: model directories, exports, checkpoints, work directories."""
