"""The pictures of the Ratio and clip page, one module each: what it shows, its controls, its take-away."""
