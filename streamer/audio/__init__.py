"""Bytes to samples: encodings, containers, resampling, mixing."""
