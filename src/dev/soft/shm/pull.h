/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SHM_PULL_H
#define SNT_DEV_SOFT_SHM_PULL_H

#include "dev/soft/burst.h"
#include "dev/soft/shm/link.h"

/*
 * Payload that is not in the ring: who takes the packet reads it from the memory of who
 * put it there, with one copy. From a place that both have mapped (share.h) he copies by
 * himself; from any other address the kernel does. Whether a process may do that depends
 * on the host: see proof.h.
 */

/* A packet's payload, in the memory of the process at the other end of a link. */
struct snt__shm_pull {
	struct snt__soft_source source;
	const struct snt__shm_link *link;
	const struct snt__shm_record *record;
};

void snt__shm_pull_init(struct snt__shm_pull *pull, const struct snt__shm_link *link,
			const struct snt__shm_record *record);

#endif
