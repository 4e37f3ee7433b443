"""The pictures of the From PPO page."""
