"""Our own protocol, /v1/stream: resumable, specified in docs/protocol.md."""
