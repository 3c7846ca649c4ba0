/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_VM_READ_CHECK_H
#define SNT_DEV_SOFT_SHM_VM_READ_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether one process may read the memory of another is tested when they meet. */

/* A value in our memory, and its address. */
struct snt__shm_vm_read_proof {
	uint64_t addr;
	uint64_t value;
};

struct snt__shm_vm_read_proof snt__shm_vm_read_offer(void);
/* Can the memory of that process be read, and did that process send the proof? */
bool snt__shm_vm_read_check(pid_t pid, const struct snt__shm_vm_read_proof *proof);

#endif
