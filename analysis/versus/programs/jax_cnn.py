"""SimpleCNN on CIFAR-10 in JAX: alone, or data-parallel by shard_map, one process per rank.

    python jax_cnn.py --data_dir cifar-10-batches-bin --start start.npz
    python launch.py --nproc 2 jax_cnn.py --data_dir cifar-10-batches-bin --start start.npz
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

from reporting import Report, parser, process_start


def convolve(params, name, x, dtype):
    x = lax.conv_general_dilated(x.astype(dtype), params[f"{name}.weight"].astype(dtype), (1, 1), "SAME",
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.nn.relu(x + params[f"{name}.bias"].astype(dtype))
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def linear(params, name, x, dtype):
    return x.astype(dtype) @ params[f"{name}.weight"].astype(dtype) + params[f"{name}.bias"].astype(dtype)


def loss_of(params, records, dtype):
    """`records`: CIFAR-10's bytes, each a label and an image."""
    labels, images = records[:, 0].astype(jnp.int32), records[:, 1:].reshape(-1, 3, 32, 32)
    x = (images.transpose(0, 2, 3, 1).astype(jnp.float32) / 255 - 0.5) / 0.5
    x = convolve(params, "conv2", convolve(params, "conv1", x, dtype), dtype)
    x = jax.nn.relu(linear(params, "fc1", x.reshape(len(x), -1), dtype))
    logits = linear(params, "fc2", x, dtype).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def make_step(mesh, optimizer, dtype):
    def step(params, state, records):
        local = lax.pcast(params, "dp", to="varying")  # gradients are this rank's until they are averaged
        loss, gradients = jax.value_and_grad(loss_of)(local, records, dtype)
        loss, gradients = lax.pmean((loss, gradients), "dp")
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("dp")), out_specs=P()),
                   donate_argnums=(0, 1))


def main():
    flags = parser(__doc__)
    flags.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    args = flags.parse_args()
    os.environ["NPROC"] = str(args.threads)  # XLA sizes its thread pool by it
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(os.environ["COORDINATOR"], ranks, rank)
    report = Report(rank, process_start(os.getppid() if ranks > 1 else "self"))
    names = [f"data_batch_{i}.bin" for i in range(1, 6)]
    records = np.concatenate([np.fromfile(f"{args.data_dir}/{name}", dtype=np.uint8) for name in names])
    records = records.reshape(-1, 1 + 3 * 32 * 32)

    mesh = jax.make_mesh((ranks,), ("dp",))
    jax.set_mesh(mesh)
    start = dict(np.load(args.start))
    order = start.pop("order")[:, rank]
    params = jax.device_put(start, NamedSharding(mesh, P()))
    optimizer = optax.adam(args.lr)
    state = jax.jit(optimizer.init)(params)
    step = make_step(mesh, optimizer, jnp.bfloat16 if args.precision == "bf16" else jnp.float32)
    for examples in order[:args.max_steps]:
        batch = jax.make_array_from_process_local_data(NamedSharding(mesh, P("dp")), records[examples])
        params, state, loss = step(params, state, batch)
        report.step_done(jax.block_until_ready(loss))
    report.finish(args)


if __name__ == "__main__":
    main()
