"""The words of which forms of library calls are made (`forms.py`). Nothing here imports xDSL."""

CUBLAS, CUDNN = "cublas", "cudnn"
RELU, TF32, COMPILED = "relu", "tf32", "compiled"
FACTOR = "x"
PLACES = "dhw"
