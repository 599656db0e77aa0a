"""Twilio Media Streams: a call comes in, and readers follow its text."""
