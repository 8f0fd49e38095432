/* What MPI_Allreduce costs a plain C program, to compare comm_bench with:

     mpicc -O2 comm_bench/nccl/plain_mpi.c -o plain_mpi
     mpirun -n 2 --bind-to none ./plain_mpi 4096 1048576 8388608

   For each size in bytes, of float in place: the median over the iterations, in microseconds, of the slowest rank's time from its own start
   after a barrier, as comm_bench has it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median_seconds(size_t bytes) {
  enum { kWarmup = 50 };
  const int iterations = bytes > 1 << 18 ? 200 : 2000;
  float* const data = calloc(bytes, 1);
  double* const seconds = malloc(iterations * sizeof(double));
  for (int i = -kWarmup; i < iterations; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double own = MPI_Wtime() - start;
    double slowest;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i >= 0) seconds[i] = slowest;
  }
  qsort(seconds, iterations, sizeof(double), compare);
  const double median = seconds[iterations / 2];
  free(seconds);
  free(data);
  return median;
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 1; i < argc; ++i) {
    const double seconds = median_seconds(strtoul(argv[i], NULL, 10));
    if (rank == 0) printf("%10s bytes %10.1f us\n", argv[i], seconds * 1e6);
  }
  MPI_Finalize();
}
