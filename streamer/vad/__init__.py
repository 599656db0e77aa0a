"""Speech detection: which frames hold speech."""
