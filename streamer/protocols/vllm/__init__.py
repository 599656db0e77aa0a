"""The realtime dialect that vLLM's clients speak."""
