"""Reader for databases that rocprofv3 and rocprof-sys write in ROCm 7 and later."""
