"""What a learner takes to work: each snippet of the course, alone."""
