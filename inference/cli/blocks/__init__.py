"""Tables that a command reads block by block: opened, looked through, fitted."""
