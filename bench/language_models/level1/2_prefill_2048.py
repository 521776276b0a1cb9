from qwen3 import Prefill, prompt


class Model(Prefill):
    pass


def get_inputs():
    return prompt(2048)
