"""Sockets and processes; knows no protocol."""
