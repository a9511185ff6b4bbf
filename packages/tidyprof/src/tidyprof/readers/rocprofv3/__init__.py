"""CSV and JSON of rocprofv3."""
