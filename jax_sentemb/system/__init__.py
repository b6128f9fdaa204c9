"""What the package does to the process that it runs in: output streams, terminal, logging, freed memory."""
