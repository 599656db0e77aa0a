"""The realtime dialect that vLLM's clients speak; OpenAI's route hands its sockets on."""
