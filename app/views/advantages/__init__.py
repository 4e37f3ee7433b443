"""The pictures of the Advantages page, one module each: draw(lens) and settings(lens)."""
