"""gpt under DeepSpeed's ZeRO stage 3, on CPUs over Gloo.

    torchrun --standalone --nproc_per_node 2 deepspeed_gpt.py --data_dir text --max_steps 100

Same seed, same losses as `pytorch_gpt.py --fsdp` and `//trainers:fsdp` with `--model=gpt --dataset=text`.
"""

import argparse
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from pytorch_gpt import Gpt, Text, loss_of
from reporting import Report, process_start


def make_engine(args):
    model = Gpt(tied=True)
    model.draw_weights(args.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    config = {"train_micro_batch_size_per_gpu": args.batch_size,
              # By default the ranks keep parameters of fewer than 100,000 elements whole: all of this model's.
              "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
              "gradient_clipping": 0.0,  # by default the norm of all gradients is clipped to 1
              "zero_allow_untested_optimizer": True,  # DeepSpeed's own Adam is compiled when it is first used
              "steps_per_print": sys.maxsize}
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def batches(args):
    text = Text(args.data_dir)
    sampler = DistributedSampler(text, shuffle=True, seed=args.seed)
    loader = DataLoader(text, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(1, 1 + args.max_steps):
        sampler.set_epoch(epoch)
        yield from loader


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="a text file; its bytes are the tokens")
    parser.add_argument("--batch_size", type=int, default=8, help="sequences per rank")
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1, help="threads per rank")
    parser.add_argument("--losses", metavar="FILE", help="step losses, a JSON list")
    parser.add_argument("--step_seconds", metavar="FILE", help="rank 0's step times, a JSON list")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    deepspeed.init_distributed("gloo")
    engine = make_engine(args)
    report = Report(dist.get_rank(), process_start(os.getppid()))
    for _, (tokens, targets) in zip(range(args.max_steps), batches(args)):
        loss = loss_of(engine(tokens), targets)
        engine.backward(loss)
        engine.step()
        report.step_done(loss.detach())
    losses = torch.stack(report.losses)
    dist.all_reduce(losses)
    report.losses = (losses / dist.get_world_size()).tolist()
    report.finish(args)
    dist.destroy_process_group()
    # All output is written. Without this, one of three runs aborted at interpreter exit: "terminate called
    # without an active exception".
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
