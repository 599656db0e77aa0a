"""What talks to the service: a Python client and the command line."""
