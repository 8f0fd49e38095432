"""Loads a folder of weights with transformers' AutoModelForCausalLM and prints its logits.

    PY=$(python3 analysis/versus/environments.py pytorch --make)
    $PY -m pip install transformers==5.12.1
    $PY tests/parity/load_export.py DIR                     # of the token ids 0 to 31
    $PY tests/parity/load_export.py DIR --ids=3,1,4,1,5
    $PY tests/parity/load_export.py DIR --like=OTHER_DIR    # exits non-zero if the two differ by more than 1e-5

DIR holds config.json and model.safetensors, such as the export of a run with --model=llama. That of a run that began
with --init_from=OTHER_DIR and took steps with --lr=0 must agree with OTHER_DIR.
"""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

BOUND = 1e-5


def numbers(text):
    return [int(number) for number in text.split(",")]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", help="folder with config.json and model.safetensors")
    parser.add_argument("--ids", type=numbers, default=list(range(32)), help="token ids, separated by commas (0 to 31)")
    parser.add_argument("--like", metavar="DIR", help="folder whose logits must agree")
    return parser.parse_args()


@torch.no_grad()
def logits_of(folder, ids):
    """Returns the logits [ids, vocabulary], in fp32; exits if the weights and config.json do not match exactly."""
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True)
    if problems := {kind: found for kind, found in report.items() if found}:
        sys.exit(f"{folder}: {problems}")
    return model(torch.tensor([ids])).logits[0]


def main():
    args = parse_args()
    logging.disable_progress_bar()
    logits = logits_of(args.dir, args.ids)
    for token, row in zip(args.ids, logits.tolist()):
        print(token, *(f"{value:.6g}" for value in row))
    if args.like:
        difference = (logits - logits_of(args.like, args.ids)).abs().max().item()
        print(f"largest difference to {args.like}: {difference:.1e}; the bound is {BOUND:.0e}")
        if not difference <= BOUND:
            sys.exit(1)


if __name__ == "__main__":
    main()
