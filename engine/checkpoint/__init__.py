"""What lies on disk: finding a model, its shapes, its weights."""
