"""Writes a text's token ids for `--dataset=tokens --data_dir=FOLDER`: the last tenth as val.bin, the rest as train.bin.

    pip install tokenizers
    python examples/tokenize_text.py TEXT TOKENIZER FOLDER

TOKENIZER is a tokenizer.json, or the name of a model on Hugging Face such as gpt2, the tokenizer of
`--model=gpt --model_size=gpt2`. The files have llm.c's format (samplers/datasets/token_files.cc).
"""

import array
import os
import sys

from tokenizers import Tokenizer


def write_ids(path, ids, vocabulary):
    wide = vocabulary > 65536
    header = array.array("i", ([20240801, 7] if wide else [20240520, 1]) + [len(ids)] + 253 * [0])
    with open(path, "wb") as file:
        file.write(header.tobytes() + array.array("I" if wide else "H", ids).tobytes())


if __name__ == "__main__":
    text, name, folder = sys.argv[1:]
    tokenizer = Tokenizer.from_file(name) if os.path.exists(name) else Tokenizer.from_pretrained(name)
    with open(text, encoding="utf-8") as file:
        ids = tokenizer.encode(file.read(), add_special_tokens=False).ids
    train = len(ids) - len(ids) // 10
    os.makedirs(folder, exist_ok=True)
    write_ids(os.path.join(folder, "train.bin"), ids[:train], tokenizer.get_vocab_size())
    write_ids(os.path.join(folder, "val.bin"), ids[train:], tokenizer.get_vocab_size())
