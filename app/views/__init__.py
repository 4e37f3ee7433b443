"""Pages with many pictures: one module for each picture, with its controls, numbers, formula, check and take-away."""
