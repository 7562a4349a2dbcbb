"""The command line: `bibert COMMAND`, one file per command, each a plain function of the same name.

A command reads its options, calls the library and prints. What it computes lives in the library.
"""

from bibert.cli.app import main

__all__ = ["main"]
