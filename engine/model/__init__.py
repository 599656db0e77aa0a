"""What is computed: mel, encoder, decoder, attention and its reference."""
