"""Twilio Media Streams: its messages, their order, and what is kept of a call."""
