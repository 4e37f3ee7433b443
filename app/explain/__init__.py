"""For each page: what to notice in the current state, the question to check yourself with, and the data to take away."""
