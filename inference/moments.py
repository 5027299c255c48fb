def moment_start(*a): return None
