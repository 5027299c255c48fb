"""Descriptions of model families for engines, in small frozen records."""
