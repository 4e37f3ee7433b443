"""Speed, measured as ratios side by side in one run; never in a timed test."""
