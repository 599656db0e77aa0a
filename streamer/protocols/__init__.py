"""What clients already speak: one folder a protocol."""
