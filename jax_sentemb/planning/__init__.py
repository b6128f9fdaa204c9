"""What a run needs of TPUs and GPUs that are not there, by their own compilers."""
