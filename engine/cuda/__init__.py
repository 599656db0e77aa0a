"""The engine on an NVIDIA GPU: kernels, graphs, and the runner that keeps the device busy."""
