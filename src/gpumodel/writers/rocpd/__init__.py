"""The database of rocprofv3."""
