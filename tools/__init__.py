"""Helpers of the command line: opening the app, finding a browser for the tests."""
