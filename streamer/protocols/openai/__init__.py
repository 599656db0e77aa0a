"""OpenAI's transcription endpoints, and in `realtime` its live sessions."""
