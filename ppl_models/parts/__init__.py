"""Parts of programs: responses, penalties, distributions, checks."""
