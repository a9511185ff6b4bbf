"""Sorts parcels; run it with `python -m parcel_sorter`."""
