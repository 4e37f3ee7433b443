"""The user interface: with `pages` the only importer of streamlit. Numbers come from `grpo_core` alone."""
