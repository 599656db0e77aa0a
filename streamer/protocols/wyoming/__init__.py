"""The Wyoming protocol of Home Assistant, over TCP."""
