"""OpenAI's Realtime API for transcription."""
