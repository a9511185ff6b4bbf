"""The book: the executed lessons and the pages of docs/, as a site that doesn't need a network."""
