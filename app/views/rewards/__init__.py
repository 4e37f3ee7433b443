"""The pictures of the Rewards page."""
