"""How many components, of which law, and with how much confidence."""
