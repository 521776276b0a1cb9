from qwen3 import Decode, cached


class Model(Decode):
    pass


def get_inputs():
    return cached(2048, batch=1)
