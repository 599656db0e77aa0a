"""WhisperLive's protocol."""
