"""Starts a Python program once per rank on this machine, for frameworks without a launcher.

    python launch.py --nproc 2 jax_cnn.py --data_dir cifar-10-batches-bin --start start.npz

Ranks find each other through RANK, WORLD_SIZE and COORDINATOR (for jax.distributed.initialize) or TF_CONFIG
(for tf.distribute). A rank that fails ends the others.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time


def free_addresses(count):
    """Returns addresses whose ports were just free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    finally:
        for s in sockets:
            s.close()


def environment(rank, addresses):
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    return os.environ | {"RANK": str(rank), "WORLD_SIZE": str(len(addresses)),
                         "COORDINATOR": addresses[0], "TF_CONFIG": json.dumps(task)}


def wait_for_all(ranks):
    """Returns the exit code of the first rank that fails, or 0."""
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [code for code in codes if code]
        if failed or None not in codes:
            return failed[0] if failed else 0
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nproc", type=int, default=2, help="ranks (2)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a program and its flags")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    addresses, ranks = free_addresses(args.nproc), []
    try:
        for rank in range(args.nproc):
            ranks.append(subprocess.Popen([sys.executable, *args.command],
                                          env=environment(rank, addresses)))
        sys.exit(wait_for_all(ranks) and 1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


if __name__ == "__main__":
    main()
