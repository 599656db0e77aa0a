"""The model: Whisper under continuous batching. Knows nothing of sockets or sessions."""
