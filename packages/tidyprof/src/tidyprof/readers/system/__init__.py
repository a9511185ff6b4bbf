"""Reader for system monitor logs."""
