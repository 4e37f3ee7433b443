"""The Live page, in parts: each module draws one of them. What several parts share lies beside this package."""
