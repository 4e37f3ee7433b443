"""The pictures of the Gradients page."""
