"""Live: a small model that learns by GRPO while you watch."""

from app.live_view import page

page()
