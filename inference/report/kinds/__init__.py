"""What kinds of description say of themselves on a page: every file here registers its sections,
and is found by itself.
"""
