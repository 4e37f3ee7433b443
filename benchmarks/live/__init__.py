"""How fast the live trainer is: beside TRL, beside transformers' generate, and to 90 % accuracy."""
