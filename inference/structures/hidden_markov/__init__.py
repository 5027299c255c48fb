"""Hidden Markov models: closed-form EM steps, starts, labels, paths of states."""
