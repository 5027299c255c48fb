"""The small records and protocols that engines and structures share."""
