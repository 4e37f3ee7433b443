"""For each page: what to notice in the current state, the question to check yourself with, the data to take away."""
