"""tokamak bench --read-log: the figures of a run on a real NPU, from its logs."""
