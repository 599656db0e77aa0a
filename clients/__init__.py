"""The client for Python and the commands that use it; knows only `streamer.protocol`."""
