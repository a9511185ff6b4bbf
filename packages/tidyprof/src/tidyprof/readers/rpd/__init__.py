"""Reader for databases from rocmProfileData."""
