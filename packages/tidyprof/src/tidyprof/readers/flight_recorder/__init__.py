"""Reader for PyTorch flight recorder dumps, which list each rank's collectives and their lines."""
