"""CSV and JSON files of rocprofv3."""
