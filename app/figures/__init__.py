"""Pictures: pure functions from numbers to Plotly figures, as plain dicts. They compute nothing and know no session."""
