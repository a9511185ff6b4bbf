"""Images: where they are, how they are staged, and which batches each rank gets."""
