"""Packed models over HTTP, in the protocol of text-embeddings-inference (TEI), and a page to try them.

A request goes from `run` (granian, which speaks HTTP) through `http` (limits of body and time) to `app` (the routes),
waits in `batching` for a free thread, and is computed by `served`, a model that reloads when its file is replaced.
"""
