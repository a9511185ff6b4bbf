"""The folders of rocprof-sys and of omnitrace."""
