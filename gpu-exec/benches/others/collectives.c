/* One collective through MPI, timed as bench_collectives.rs times ours.
 *
 *   mpicc -O3 -o collectives collectives.c
 *   mpirun -n RANKS ./collectives OP ITERATIONS BYTES [ITERATIONS BYTES ...]
 *
 * BYTES is the whole buffer as nccl-tests counts it: what all_gather ends with, what reduce_scatter
 * and all_to_all begin with. Every call is timed on every rank; a call's time is the slowest
 * rank's. A broadcast follows a barrier, as its root need not wait for anybody. Prints
 * "BYTES MEDIAN_MICROSECONDS" for every size. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *op;
static float *in, *out;
static int count, part;

static void call(void) {
  MPI_Comm all = MPI_COMM_WORLD;
  if (!strcmp(op, "all_reduce")) MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, all);
  else if (!strcmp(op, "broadcast")) MPI_Bcast(in, count, MPI_FLOAT, 0, all);
  else if (!strcmp(op, "all_gather")) MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, all);
  else if (!strcmp(op, "reduce_scatter")) MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, all);
  else MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, all);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int ranks, rank, barrier;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  op = argv[1];
  barrier = !strcmp(op, "broadcast");
  for (int arg = 2; arg + 1 < argc; arg += 2) {
    int iterations = atoi(argv[arg]), warm_up = iterations / 5 + 3;
    long bytes = atol(argv[arg + 1]);
    count = bytes / 4;
    part = (count + ranks - 1) / ranks;
    size_t most = (size_t)part * ranks * sizeof(float) + 64;
    in = malloc(most);
    out = malloc(most);
    memset(in, 0, most);
    memset(out, 0, most);
    double *took = malloc(sizeof(double) * iterations), *slowest = malloc(sizeof(double) * iterations);
    for (int i = -warm_up; i < iterations; i++) {
      if (barrier) MPI_Barrier(MPI_COMM_WORLD);
      double start = MPI_Wtime();
      call();
      if (i >= 0) took[i] = MPI_Wtime() - start;
    }
    MPI_Reduce(took, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      qsort(slowest, iterations, sizeof(double), by_size);
      printf("%ld %.3f\n", bytes, slowest[iterations / 2] * 1e6);
      fflush(stdout);
    }
    free(in), free(out), free(took), free(slowest);
  }
  MPI_Finalize();
  return 0;
}
