"""The model against published measurements."""
