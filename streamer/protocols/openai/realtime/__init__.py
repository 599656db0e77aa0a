"""OpenAI's Realtime API: transcription sessions, and the secrets that browsers open them with."""
