"""The command line ``ppl-models``: tables of options, and functions of a call."""

from inference.cli.main import app as app, main as main
