/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * openmpi: a program for MPI. The ranks send each other numbers: by collectives, by messages that are begun
 * and awaited later, and by MPI_Put and MPI_Get. Every number contains its sender, its receiver and its
 * position. Ends with 0 when each rank got what it had to get.
 */
#include <mpi.h>
#include <stdio.h>

/* A few numbers go with the message; of many, the receiver reads most out of the sender's memory. */
enum { few = 16, many = 100000, max_ranks = 16 };

static int rank, ranks;
static int mine[max_ranks * many], theirs[max_ranks * many];

static int number(int from, int to, int place) {
    return (from * max_ranks + to) * many + place;
}

static void fill(int *numbers, int count, int from, int to) {
    for (int i = 0; i < count; ++i) {
        numbers[i] = number(from, to, i);
    }
}

static void must_be(const char *call, int has, int expected, int place) {
    if (has == expected) {
        return;
    }
    fprintf(stderr, "openmpi: %s: rank %d has %d at place %d, expected %d\n", call, rank, has, place,
            expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const char *call, const int *numbers, int count, int from, int to) {
    for (int i = 0; i < count; ++i) {
        must_be(call, numbers[i], number(from, to, i), i);
    }
}

/* In `mine` there is a part for each rank, in `theirs` one from each. */
static void fill_mine(int count) {
    for (int to = 0; to < ranks; ++to) {
        fill(mine + to * count, count, rank, to);
    }
}

static void check_theirs(const char *call, int count) {
    for (int from = 0; from < ranks; ++from) {
        check(call, theirs + from * count, count, from, rank);
    }
}

static void collectives(int count) {
    for (int root = 0; root < ranks; ++root) {
        if (rank == root) {
            fill(theirs, count, root, 0);
        }
        MPI_Bcast(theirs, count, MPI_INT, root, MPI_COMM_WORLD);
        check("MPI_Bcast", theirs, count, root, 0);
    }
    for (int i = 0; i < count; ++i) {
        mine[i] = rank + i;
    }
    MPI_Allreduce(mine, theirs, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
        must_be("MPI_Allreduce", theirs[i], ranks * (ranks - 1) / 2 + ranks * i, i);
    }
    fill_mine(count);
    MPI_Alltoall(mine, count, MPI_INT, theirs, count, MPI_INT, MPI_COMM_WORLD);
    check_theirs("MPI_Alltoall", count);
}

static void messages(int count) {
    MPI_Request requests[2 * max_ranks];
    fill_mine(count);
    for (int i = 0; i < ranks; ++i) {
        MPI_Irecv(theirs + i * count, count, MPI_INT, i, count, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(mine + i * count, count, MPI_INT, i, count, MPI_COMM_WORLD, &requests[ranks + i]);
    }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    check_theirs("MPI_Irecv", count);
}

static void one_sided(int count) {
    const MPI_Aint my_part = (MPI_Aint)rank * count;
    MPI_Win window;
    MPI_Win_create(theirs, (MPI_Aint)sizeof(theirs), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    fill_mine(count);
    for (int to = 0; to < ranks; ++to) {
        MPI_Put(mine + to * count, count, MPI_INT, to, my_part, count, MPI_INT, window);
    }
    MPI_Win_fence(0, window);
    check_theirs("MPI_Put", count);
    fill(mine, ranks * count, max_ranks, max_ranks);
    for (int from = 0; from < ranks; ++from) {
        MPI_Get(mine + from * count, count, MPI_INT, from, my_part, count, MPI_INT, window);
    }
    MPI_Win_fence(0, window);
    for (int from = 0; from < ranks; ++from) {
        check("MPI_Get", mine + from * count, count, rank, from);
    }
    MPI_Win_free(&window);
}

int main(int argc, char *argv[]) {
    static const int counts[] = {few, many};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        collectives(counts[i]);
        messages(counts[i]);
        one_sided(counts[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks have what they had to get\n", ranks);
    }
    return MPI_Finalize();
}
