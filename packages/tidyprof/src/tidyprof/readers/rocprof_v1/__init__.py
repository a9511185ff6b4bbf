"""Reader for CSV tables from rocprof 1 and rocprofv2."""
