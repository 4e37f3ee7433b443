"""The pictures of the Sampling page."""
