/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_VM_READ_H
#define SNT_DEV_SOFT_SHM_VM_READ_H

#include "dev/soft/burst.h"
#include "dev/soft/shm/link.h"

/*
 * Payload outside the ring: the consumer reads it from the producer's memory, with one
 * copy. From a place that both have mapped (share.h) it copies directly; from any other
 * address the kernel copies. Whether a process may do that depends on the host: see
 * vm_read_check.h.
 */

/* A packet's payload, in the memory of the process at the other end of a link. */
struct snt__shm_vm_read {
	struct snt__soft_source source;
	const struct snt__shm_link *link;
	const struct snt__shm_record *record;
};

void snt__shm_vm_read_init(struct snt__shm_vm_read *pull,
			   const struct snt__shm_link *link,
			   const struct snt__shm_record *record);

#endif
