"""A program with unchanged models of transformers and torchvision and random weights, whose classes are optimized.

    python real_models.py --models llama,bert --device cpu --size small --passes 3

Prints a checksum of the models' outputs. `benches` builds them for a caller that wants to time them itself.
"""

import argparse
import sys

import torch


def llama(big):
    from transformers import LlamaConfig, LlamaModel

    size = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32, "num_key_value_heads": 4}
    tiny = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    layers = {"num_hidden_layers": 8, "vocab_size": 32000} if big else {"num_hidden_layers": 2, "vocab_size": 128}
    model = LlamaModel(LlamaConfig(use_cache=False, **(size if big else tiny), **layers))
    return model, {"input_ids": torch.randint(0, 128, (4, 1024) if big else (4, 128))}


def gemma2(big):
    from transformers import Gemma2Config, Gemma2Model

    size = {"hidden_size": 2304, "intermediate_size": 9216} if big else {"hidden_size": 256, "intermediate_size": 512}
    rest = {"num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 4 if big else 2, "head_dim": 32}
    model = Gemma2Model(Gemma2Config(use_cache=False, vocab_size=256, **size, **rest))
    return model, {"input_ids": torch.randint(0, 128, (4, 1024) if big else (4, 128))}


def t5(big):
    from transformers import T5Config, T5EncoderModel

    size = {"d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16, "num_layers": 8}
    tiny = {"d_model": 256, "d_kv": 64, "d_ff": 512, "num_heads": 4, "num_layers": 2}
    model = T5EncoderModel(T5Config(feed_forward_proj="gated-gelu", vocab_size=256, **(size if big else tiny)))
    return model, {"input_ids": torch.randint(0, 128, (8, 512) if big else (4, 128))}


def bert(big):
    from transformers import BertConfig, BertModel

    tiny = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2}
    model = BertModel(BertConfig(vocab_size=512, **({"num_hidden_layers": 6} if big else tiny)))
    return model, {"input_ids": torch.randint(0, 128, (64, 512) if big else (4, 128))}


def gpt2(big):
    from transformers import GPT2Config, GPT2Model

    size = {"n_layer": 6} if big else {"n_layer": 2, "n_embd": 256, "n_head": 4, "vocab_size": 256}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2Model(GPT2Config(use_cache=False, **size, **ends))
    return model, {"input_ids": torch.randint(0, 128, (16, 1024) if big else (4, 128))}


def clip(big):
    from transformers import CLIPTextConfig, CLIPTextModel

    tiny = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2}
    model = CLIPTextModel(CLIPTextConfig(vocab_size=512, **({} if big else tiny)))
    return model, {"input_ids": torch.randint(0, 128, (64, 77) if big else (4, 64))}


def cohere(big):
    from transformers import CohereConfig, CohereModel

    size = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4}
    tiny = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    rest = {"num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 256}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    model = CohereModel(CohereConfig(use_cache=False, **(size if big else tiny), **rest, **ends))
    return model, {"input_ids": torch.randint(0, 128, (4, 1024) if big else (4, 128))}


def convnextv2(big):
    from transformers import ConvNextV2Config, ConvNextV2Model

    model = ConvNextV2Model(
        ConvNextV2Config(**({} if big else {"hidden_sizes": [32, 64], "depths": [1, 1], "num_stages": 2}))
    )
    return model, {"pixel_values": torch.randn((32, 3, 224, 224) if big else (2, 3, 128, 128))}


def scaler(big):
    from transformers import TimeSeriesTransformerConfig
    from transformers.models.time_series_transformer.modeling_time_series_transformer import TimeSeriesStdScaler

    shape = (1024, 512, 16) if big else (32, 64, 16)
    model = TimeSeriesStdScaler(TimeSeriesTransformerConfig(prediction_length=8))
    return model, {"data": torch.rand(shape), "observed_indicator": torch.ones(shape)}


def convnext(big):
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    widths = [(96, 192, 3), (192, 384, 3), (384, 768, 9), (768, None, 3)] if big else [(32, 64, 1), (64, None, 1)]
    model = ConvNeXt([CNBlockConfig(*width) for width in widths])
    return model, {"x": torch.randn((128, 3, 224, 224) if big else (2, 3, 64, 64))}


def detection(big):
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    model = resnet_fpn_backbone(backbone_name="resnet50" if big else "resnet18", weights=None)
    return model, {"x": torch.randn((8, 3, 640, 640) if big else (1, 3, 64, 64))}


def vit(big):
    from torchvision.models.vision_transformer import VisionTransformer

    size = (224, 16, 6, 12, 768, 3072) if big else (64, 16, 2, 4, 256, 512)
    return VisionTransformer(*size), {"x": torch.randn(64 if big else 4, 3, size[0], size[0])}


MODELS = {
    one.__name__: one
    for one in (llama, gemma2, t5, bert, gpt2, clip, cohere, convnextv2, scaler, convnext, detection, vit)
}


def built(names, device, big, dtype):
    """Yields (name, model, inputs) of each, in evaluation mode, one after another, so that a caller can free each
    before the next.
    """
    for name in names:
        torch.manual_seed(0)
        with torch.device(device):
            model, inputs = MODELS[name](big)
        for parameter in model.parameters():
            # As if trained: a norm whose weights are all one, or a head of zeros, would hide mistakes.
            parameter.data.add_(torch.randn_like(parameter).mul_(0.1 if parameter.dim() == 1 else 1e-3))
        cast = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
        yield name, model.to(dtype).eval().requires_grad_(False), cast


def first_tensor(value):
    """The first tensor of an output, whatever container the output is."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values())) if hasattr(value, "values") else value[0]
    return value


def main():
    parser = argparse.ArgumentParser(description="Forward passes of real models with random weights.")
    parser.add_argument("--models", default="llama,t5,bert,gpt2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="small", choices=["small", "real"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--passes", type=int, default=3)
    chosen = parser.parse_args()
    names, dtype = chosen.models.split(","), getattr(torch, chosen.dtype)
    with torch.no_grad():
        for name, model, inputs in built(names, chosen.device, chosen.size == "real", dtype):
            for _ in range(chosen.passes):
                result = first_tensor(model(**inputs))
            sys.stdout.write(f"{name} {float(result.double().square().mean()):.6g}\n")


if __name__ == "__main__":
    main()
