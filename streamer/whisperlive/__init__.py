"""WhisperLive's messages."""
