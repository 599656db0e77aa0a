"""The client for Python and the commands that use it. Imports nothing of ours but `streamer.protocol`."""
