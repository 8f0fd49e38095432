"""Random Llama and Qwen3 models of transformers, with their logits and training losses.

  PY=$(python3 analysis/versus/environments.py pytorch --make)
  $PY -m pip install transformers==5.12.1
  $PY trainers/models/goldens/make_llama_goldens.py trainers/models/goldens/llama

Writes to the folder:
  CASE/                  config.json and weights, as save_pretrained writes them; one case has shards and their index,
                         one a config.json with the keys of transformers 4
  expected.safetensors   input_ids [2, 32], logits of each case by its name [2, 32, 64], batches
                         [20, 2, 33] of training
  losses.json            by CASE, the loss before each of 20 AdamW steps, one on each of `batches`
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

VOCABULARY, TOKENS, STEPS = 64, 32, 20
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 256, "initializer_range": 0.25,
        "attn_implementation": "eager"}
# Of the wavelengths of 16 features, one is left as it is, one is interpolated and the others are divided by `factor`.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(rms_norm_eps=1e-5, **SIZE, **options))


def qwen3(**options):
    return Qwen3ForCausalLM(Qwen3Config(rms_norm_eps=1e-6, head_dim=8, **SIZE, **options))


def rope(theta, scaling=None):
    return (scaling or {"rope_type": "default"}) | {"rope_theta": theta}


CASES = {
    "llama_tied_1_kv_head": lambda: llama(
        tie_word_embeddings=True, num_key_value_heads=1, rope_parameters=rope(10000.0)),
    "llama_scaled_rope": lambda: llama(
        tie_word_embeddings=False, num_key_value_heads=2, head_dim=16, rope_parameters=rope(10000.0, LLAMA3)),
    "llama_sharded": lambda: llama(
        tie_word_embeddings=False, num_key_value_heads=4, rope_parameters=rope(500000.0)),
    "qwen3_1_kv_head": lambda: qwen3(
        tie_word_embeddings=False, num_key_value_heads=1, rope_parameters=rope(10000.0)),
    "qwen3_tied_old_config": lambda: qwen3(
        tie_word_embeddings=True, num_key_value_heads=2, rope_parameters=rope(500000.0, LLAMA3)),
}
SHARD_SIZES = {"llama_sharded": "10KB"}


def sequences(*shape):
    """Returns learnable ids: each but the first follows from the one before and a random number from 0 to 3."""
    tokens = torch.randint(4, shape)
    tokens[..., 0] = torch.randint(VOCABULARY, shape[:-1])
    for i in range(1, shape[-1]):
        tokens[..., i] = (tokens[..., i] + 5 * tokens[..., i - 1]) % VOCABULARY
    return tokens


def make_model(case):
    torch.manual_seed(list(CASES).index(case))
    model = CASES[case]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter += 0.2 * torch.randn_like(parameter)
    return model


def write_old_config(folder):
    """Rewrites config.json in the form of transformers 4."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    config |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling, "torch_dtype": config.pop("dtype")}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def train(model, batches):
    """Yields the loss before each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    for batch in batches:
        logits = model(batch[:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        yield float(f"{loss.item():.9g}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(7)
    input_ids = sequences(2, TOKENS)
    batches = sequences(STEPS, 2, TOKENS + 1)
    expected, losses = {"input_ids": input_ids, "batches": batches}, {}
    for case in CASES:
        model = make_model(case)
        model.save_pretrained(folder / case, max_shard_size=SHARD_SIZES.get(case, "1GB"))
        (folder / case / "generation_config.json").unlink()
        if case == "qwen3_tied_old_config":
            write_old_config(folder / case)
        with torch.no_grad():
            expected[case] = model(input_ids).logits
            loaded = AutoModelForCausalLM.from_pretrained(folder / case, attn_implementation="eager")
            assert torch.equal(loaded(input_ids).logits, expected[case]), case
        losses[case] = list(train(model, batches))
    save_file(expected, folder / "expected.safetensors")
    (folder / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")


main()
