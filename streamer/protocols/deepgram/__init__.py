"""Deepgram's live and pre-recorded transcription."""
