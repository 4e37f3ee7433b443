"""Live: a small model that learns by GRPO while you watch."""

from app.live.page import page

page()
