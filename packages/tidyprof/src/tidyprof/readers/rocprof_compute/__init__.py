"""Reader for folders and databases from rocprof-compute."""
