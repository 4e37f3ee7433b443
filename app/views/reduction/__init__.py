"""The pictures of the Reduction page, one module each: draw(lens) and settings(lens)."""
