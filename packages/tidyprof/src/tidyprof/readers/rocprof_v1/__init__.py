"""CSV and JSON of the first rocprof."""
