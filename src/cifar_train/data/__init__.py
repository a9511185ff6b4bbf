"""Images: where they lie, how they are staged, and the batches that each rank gets."""
