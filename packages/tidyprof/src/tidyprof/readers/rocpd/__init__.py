"""The databases of rocprofv3 and rocprof-sys since ROCm 7."""
