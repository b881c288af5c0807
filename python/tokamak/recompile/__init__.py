"""How often a sequence of steps compiles, and how often it captures: predicted before it runs.

    from tokamak.recompile import Tensor, predict
    steps = [{"x": Tensor((4, 64)), "lengths": [n, n + 1]} for n in range(5, 10)]
    print(predict(steps, dynamic=False))            # 5 compiles, with the reason of each

The model of Dynamo is in dynamo.py, that of npugraph_ex's graph keys in capture.py. Needs neither
torch nor an NPU; the tests compare it with the installed PyTorch.
"""

from .capture import CaptureOptions
from .inputs import Tensor, describe
from .prediction import Event, Prediction, predict

__all__ = ["CaptureOptions", "Event", "Prediction", "Tensor", "describe", "predict"]
