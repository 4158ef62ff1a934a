"""Models from the network, over TLS: llama.cpp's own code chooses and downloads them through a forwarder in here.

Knows nothing of HTTP serving, of the engine or of the compiled module: it meets llama.cpp in `ports`.
"""
