"""Health, status, page and documents over plain HTTP."""
