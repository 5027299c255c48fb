"""What engines make of a model's description of itself, one folder a kind; the registry is the one
file that knows them all.
"""
