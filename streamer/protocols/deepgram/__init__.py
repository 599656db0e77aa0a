"""Deepgram's live and pre-recorded transcription: its parameters and messages, without sockets."""
