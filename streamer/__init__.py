"""The service: sound in at a socket, text out."""
