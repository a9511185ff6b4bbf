"""One folder for each format; `registry` knows them all."""
