/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SOFT_SHM_H
#define BENCH_SOFT_SHM_H

/* What memory can do: 1 MiB copied into memory that another process shares. */
void shm_copy_mib(void *arg, unsigned count);

#endif
