# entry: Noisy.forward
import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor):
        logger.debug("shape %s", x.shape)
        logger.info("mean %s", x.mean())  # expect: print
        logging.warning(f"max {x.max()}")  # expect: print
        print("here")  # expect: print
        if x.shape[-1] != 64:
            print("bad", x)
            raise ValueError(f"expected 64, got {x.shape[-1]} {x.max().item()}")
        return x * 2
