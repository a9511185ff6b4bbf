"""The databases of rocmProfileData."""
