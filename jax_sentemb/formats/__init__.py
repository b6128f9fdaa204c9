"""What lies on disk: model directories, exports, checkpoints."""
