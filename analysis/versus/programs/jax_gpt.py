"""gpt in JAX, one process per rank: the compiler divides the step by the arrays' shardings.

    python launch.py --nproc 2 jax_gpt.py --data_dir text --start start.npz --parallel fsdp
    python launch.py --nproc 2 jax_gpt.py --data_dir text --start start.npz --parallel tp --sequence_parallel
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from reporting import Report, parser, process_start

DEPTH, HEADS, TOKENS = 4, 4, 128  # --model_size=nano
COLUMNS, ROWS = ("q", "k", "v", "expand"), ("projection", "contract", "token")


def spec_of(name, parallel):
    """Returns the dimension in which a parameter is divided among the ranks."""
    layer, kind = name.split(".")[-2:]
    if parallel == "fsdp":
        return P("fsdp")
    if layer in COLUMNS:
        return P(None, "tp") if kind == "weight" else P("tp")
    return P("tp") if layer in ROWS and kind == "weight" else P()


def linear(params, name, x):
    return x @ params[f"{name}.weight"] + params[f"{name}.bias"]


def norm(params, name, x):
    return params[f"{name}.weight"] * jax.nn.standardize(x, epsilon=1e-5) + params[f"{name}.bias"]


def attention(params, name, x):
    q, k, v = (linear(params, f"{name}.{part}", x).reshape(*x.shape[:2], HEADS, -1) for part in "qkv")
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return linear(params, f"{name}.projection", y.reshape(x.shape))


def mlp(params, name, x):
    return linear(params, f"{name}.contract", jax.nn.gelu(linear(params, f"{name}.expand", x)))


def loss_of(params, windows, between):
    """`between`: sharding of activations between the layers divided by tensor parallelism, or None."""
    tokens, targets = windows[:, :-1].astype(jnp.int32), windows[:, 1:].astype(jnp.int32)
    place = (lambda x: jax.lax.with_sharding_constraint(x, between)) if between else lambda x: x
    x = params["token.weight"][tokens] + params["position.weight"]
    for i in range(DEPTH):
        x = place(x + attention(params, f"blocks.{i}.attention", norm(params, f"blocks.{i}.norm1", place(x))))
        x = place(x + mlp(params, f"blocks.{i}.mlp", norm(params, f"blocks.{i}.norm2", x)))
    logits = norm(params, "norm", x) @ params["token.weight"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def make_step(optimizer, shardings, between):
    def step(params, state, windows):
        loss, gradients = jax.value_and_grad(loss_of)(params, windows, between)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    return jax.jit(step, donate_argnums=(0, 1), out_shardings=shardings)


def main():
    flags = parser(__doc__)
    flags.add_argument("--parallel", choices=["fsdp", "tp"], required=True)
    flags.add_argument("--sequence_parallel", action="store_true")
    args = flags.parse_args()
    os.environ["NPROC"] = str(args.threads)  # XLA sizes its thread pool by it
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["COORDINATOR"], ranks, rank)
    report = Report(rank, process_start(os.getppid()))
    text = np.fromfile(args.data_dir, dtype=np.uint8)
    text = text[:len(text) - len(text) // 10]
    windows = text[:len(text) // (TOKENS + 1) * (TOKENS + 1)].reshape(-1, TOKENS + 1)

    mesh = jax.make_mesh((ranks,), (args.parallel,), axis_types=(AxisType.Auto,))
    whole = NamedSharding(mesh, P())
    start = dict(np.load(args.start))
    order = start.pop("order")
    order = order[:, rank if args.parallel == "fsdp" else 0]
    shardings = {name: NamedSharding(mesh, spec_of(name, args.parallel)) for name in start}
    params = jax.device_put(start, shardings)
    optimizer = optax.adam(args.lr)
    of_state = jax.tree_util.tree_map_with_path(
        lambda path, _: shardings.get(getattr(path[-1], "key", ""), whole), jax.eval_shape(optimizer.init, params))
    state = jax.jit(optimizer.init, out_shardings=of_state)(params)
    between = NamedSharding(mesh, P(None, "tp")) if args.sequence_parallel else None
    step = make_step(optimizer, (shardings, of_state, whole), between)
    of_batch = NamedSharding(mesh, P("fsdp")) if args.parallel == "fsdp" else whole
    for examples in order[:args.max_steps]:
        batch = jax.make_array_from_process_local_data(of_batch, windows[examples])
        params, state, loss = step(params, state, batch)
        report.step_done(jax.block_until_ready(loss))
    report.finish(args)


if __name__ == "__main__":
    main()
