"""The database of rocmProfileData."""
