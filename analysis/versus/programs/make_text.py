"""Writes a file of learnable bytes: most are determined by the previous one.

    python make_text.py FILE
"""

import random
import sys

BYTES = 1 << 20


def made_text():
    rng, token, text = random.Random(0), 0, bytearray()
    for _ in range(BYTES):
        if rng.random() < 0.9:
            token = (5 * token + rng.randrange(4)) % 256
        else:
            token = rng.randrange(256)
        text.append(token)
    return bytes(text)


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(made_text())
