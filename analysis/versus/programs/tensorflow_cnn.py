"""SimpleCNN on CIFAR-10 in TensorFlow: alone, or under MultiWorkerMirroredStrategy, one process per rank.

    python tensorflow_cnn.py --data_dir cifar-10-batches-bin --start start.npz
    python launch.py --nproc 2 tensorflow_cnn.py --data_dir cifar-10-batches-bin --start start.npz
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from reporting import Report, parser, process_start


def make_model(start):
    model = tf.keras.Sequential([
        tf.keras.layers.Input((32, 32, 3)),
        tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(512, activation="relu"),
        tf.keras.layers.Dense(10)])
    model.set_weights([start[f"{layer}.{kind}"] for layer in ("conv1", "conv2", "fc1", "fc2")
                       for kind in ("weight", "bias")])
    return model


def make_batches(args, rank):
    names = [f"{args.data_dir}/data_batch_{i}.bin" for i in range(1, 6)]
    records = np.concatenate([np.fromfile(name, dtype=np.uint8) for name in names])
    records = tf.constant(records.reshape(-1, 1 + 3 * 32 * 32))

    def decode(examples):
        batch = tf.gather(records, examples)
        images = tf.transpose(tf.reshape(batch[:, 1:], (-1, 3, 32, 32)), (0, 2, 3, 1))
        return (tf.cast(images, tf.float32) / 255 - 0.5) / 0.5, tf.cast(batch[:, 0], tf.int32)

    order = np.load(args.start)["order"][:args.max_steps, rank]
    return tf.data.Dataset.from_tensor_slices(order).map(decode).prefetch(tf.data.AUTOTUNE)


def make_step(strategy, model, optimizer):
    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = tf.cast(model(images, training=True), tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses) / strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # sums over the replicas
        return loss

    @tf.function
    def distributed_step(batch):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=batch), axis=None)

    return distributed_step


def main():
    flags = parser(__doc__)
    flags.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    args = flags.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    if args.precision == "bf16":
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    distributed = "TF_CONFIG" in os.environ
    rank = int(os.environ.get("RANK", 0))
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if distributed else tf.distribute.get_strategy()
    report = Report(rank, process_start(os.getppid() if distributed else "self"))
    with strategy.scope():
        model = make_model(np.load(args.start))
        optimizer = tf.keras.optimizers.Adam(args.lr, epsilon=1e-8)
    step = make_step(strategy, model, optimizer)
    for batch in strategy.distribute_datasets_from_function(lambda _: make_batches(args, rank)):
        report.step_done(step(batch).numpy())
    report.finish(args)


if __name__ == "__main__":
    main()
