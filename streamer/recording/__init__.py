"""Whole recordings: cut into chunks, decoded side by side, joined."""
