"""Reader for databases from rocprofv3 and rocprof-sys, starting with ROCm 7."""
