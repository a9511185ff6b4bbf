"""The book: the lessons as executed, and the pages of docs/, as a site that needs no network."""
