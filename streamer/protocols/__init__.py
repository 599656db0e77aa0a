"""What clients already speak: one folder a protocol, the same file names in each.

native           /v1/stream              our own, resumable          docs/protocol.md
deepgram         /v1/listen              live, and whole files       docs/deepgram.md
openai           /v1/audio/*             whole files                 docs/openai.md
openai/realtime  /v1/realtime            live                        docs/openai.md
vllm             /v1/realtime            live, in vLLM's dialect     docs/vllm-realtime.md
twilio           /v1/twilio, /v1/calls   calls, and their readers    docs/twilio.md
whisperlive      /v1/whisperlive, /      live                        docs/whisperlive.md
wyoming          a TCP port of its own   Home Assistant              docs/wyoming.md

route      the addresses, and what is checked before a socket is accepted (wyoming: server)
session    one client, from the accepted socket to the close
messages   what the client sends and is sent, without I/O
options    what a client may ask for

`transport.edge.serve` runs a session and turns whatever ends it into a fault, which the session
writes in its own way. `streamer.app` lists the routes.
"""
