"""OpenAI's protocols: what their messages mean here, without the sockets that carry them."""
