"""The pictures of the KL page."""
