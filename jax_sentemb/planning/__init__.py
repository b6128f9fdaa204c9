"""Plan runs on TPUs and GPUs that this machine lacks: compile a step with their compilers and read its memory and cost."""
