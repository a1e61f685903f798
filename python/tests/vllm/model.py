"""Writes a small random model whose output depends on its KV cache: ``model.py FOLDER [SEED [HEADS WIDTH [WINDOW]]]``.

Run by the Python of the environment with vLLM. vLLM's own dummy weights are so small that attention hardly moves the
output, and a wrong KV block would pass a comparison of tokens; these are scaled so that it does not.
"""

import functools
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig


def main(folder: str, seed: int = 0, heads: int = 4, width: int = 64, window: int = 0) -> None:
    """Whose layers all read a window of the tokens before, if one is given."""
    kind = functools.partial(MistralConfig, sliding_window=window, head_dim=width) if window else LlamaConfig
    config = kind(
        hidden_size=heads * width,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=1024,
        max_position_embeddings=16384,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.fill_(1)
                continue
            spread = 1.0 if "embed" in name else weight.shape[1] ** -0.5
            # Sharp attention, and much of the output from it.
            spread *= 2.0 if "q_proj" in name or "k_proj" in name else 4.0 if "o_proj" in name else 1.0
            weight.normal_(0, spread)
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
