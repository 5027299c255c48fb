"""The command line ``ppl-models``: one file a command, on an app that knows none of them."""
