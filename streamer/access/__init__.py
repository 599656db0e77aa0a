"""Who may use the service: keys, tokens, origins, limits."""
