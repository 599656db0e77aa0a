"""Tokens to text and back: vocabulary, sampling rules, segments, word times."""
