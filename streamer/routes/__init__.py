"""What the service answers: one module for each protocol, each with `routes(service)`."""
