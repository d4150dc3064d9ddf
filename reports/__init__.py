"""What runs measured, and what a server's work costs, from their records."""

import os

# Before anybody imports numpy: our arrays are too small for several threads, and OpenBLAS' own would spin meanwhile
# (a fortieth of the reference experiment's CPU time).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
