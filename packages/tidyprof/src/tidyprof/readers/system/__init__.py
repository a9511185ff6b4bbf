"""Reader for logs from system monitors."""
