"""Laws of the components of a mixture, and of the states of a hidden Markov model: densities, both
halves of EM, noise.
"""
