"""The tests that need GPUs, for packing; gpu_tests_test compares the list with the BUILD files."""

GPU_TESTS = [
    "//comm_bench/cuda:micro_gpu_test",
    "//comm_bench/modes:nccl_gpu_test",
    "//parallel/comm:nccl_gpu_test",
    "//parallel/context:block_attention_gpu_test",
    "//parallel/ddp:sync_batch_norm_gpu_test",
    "//parallel/device:device_gpu_test",
    "//parallel/device:graph_gpu_test",
    "//parallel/pipeline/engine:streams_gpu_test",
    "//samplers/loader:data_loader_gpu_test",
    "//tests/parity:pipeline_gpu_test",
    "//trainers/graphs:cuda_graph_gpu_test",
    "//trainers/loop:no_sync_gpu_test",
    "//trainers/peak:peak_gpu_test",
]
