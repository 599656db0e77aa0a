"""Continuous batching: what is encoded next, what is decoded together, on one thread."""
