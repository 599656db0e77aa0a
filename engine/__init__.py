"""The engine: Whisper under continuous batching. Knows nothing of sockets or sessions.

A window enters through `api`, the seam to the rest of Wordwire, and `local`, its implementation.
The folders, in the order in which a window passes:

process     the engine in a process of its own: owner, worker, and the wire between them
batching    one thread that schedules, encodes, decodes and finishes windows in changing batches
model       what is computed: mel spectrogram, encoder, decoder, attention, on every device
cuda        the same on a GPU: kernels, graphs, paged attention, sampling
decoding    tokens to text: rules, segments, language, repetition, times of words
checkpoint  model files: finding, downloading, and reading them

The modules beside them: `build` puts the components together for a device, `config` are the
settings.
"""

import os

# Set before torch loads OpenMP, whose threads otherwise spin while they wait for each other. When
# anything else needs a core, as the server's own thread does, spinning makes a window ten times as
# expensive: encoding 4 s took 875 instead of 93 ms of processor time on 2 busy cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
