/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_PROOF_H
#define SNT_DEV_SOFT_SHM_PROOF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether one process may read the memory of another is tested when they meet. */

/* A value in our memory, and its address. */
struct snt__shm_proof {
	uint64_t addr;
	uint64_t value;
};

struct snt__shm_proof snt__shm_prove(void);
/* Can the memory of that process be read, and did that process send the proof? */
bool snt__shm_proven(pid_t pid, const struct snt__shm_proof *proof);

#endif
