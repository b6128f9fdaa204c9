"""Effects of the package on its process: output streams, terminal, logging, freed memory."""
