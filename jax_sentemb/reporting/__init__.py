"""Reports and pictures of runs."""
