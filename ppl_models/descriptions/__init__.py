"""How families describe themselves to engines, in small frozen records."""
