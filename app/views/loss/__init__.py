"""The pictures of the Loss page."""
