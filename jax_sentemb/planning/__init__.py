"""Plans runs on TPUs and GPUs that are not present: compiles a step with their own compilers and reads its memory and cost."""
