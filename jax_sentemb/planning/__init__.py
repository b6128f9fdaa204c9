"""Plan runs on absent TPUs and GPUs: compile a step with their own compilers and read its memory and cost."""
