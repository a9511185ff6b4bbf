"""Reader for CSV and JSON files from rocprofv3."""
