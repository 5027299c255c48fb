"""What programs are made of: responses, penalties, distributions, checks."""
