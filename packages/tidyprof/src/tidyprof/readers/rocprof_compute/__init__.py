"""The folders and databases of rocprof-compute."""
