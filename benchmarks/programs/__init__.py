"""Published programs with discrete latents, written anew in the shape of their source.

Each is handed to ``fit`` as its authors wrote it: their arguments, their statements. Data are small
and simulated.
"""

from programs.examples_numpyro import PROGRAMS as NUMPYRO
from programs.examples_pyro import PROGRAMS as PYRO
from programs.music import PROGRAMS as MUSIC
from programs.tutorials import PROGRAMS as TUTORIALS

PROGRAMS = {case.name: case for case in (*PYRO, *MUSIC, *TUTORIALS, *NUMPYRO)}
