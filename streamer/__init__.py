"""The service: audio in at a socket, text out. The folders, in the order in which audio passes:

transport      sockets, signals and limits of a connection; knows no protocol
access         keys, origins and budgets: who may use the service
protocols      one folder a protocol: its route, its messages, its options
audio          bytes to samples: PCM, WAV, containers, resampling, mixing
session        a client's session over an engine: tasks, clock, retries
vad            samples to speech or no speech, every 32 ms
transcription  the core without I/O: samples and hypotheses in, windows and events out
recording      whole files instead of live streams
operations     metrics, logs, capacity, and loading of the engine
web            the page, health, status, and the API's document
page           what the browser loads

The modules beside them: `app` builds the routes and `service` is what they share. `config` and
`options` are the settings. `protocol` and `messages` are the wire format of `/v1/stream`, `wire`
and `schema` what every protocol needs.
"""
