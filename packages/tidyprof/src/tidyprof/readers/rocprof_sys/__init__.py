"""Reader for folders from rocprof-sys and omnitrace."""
