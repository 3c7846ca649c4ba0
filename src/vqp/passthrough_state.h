/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_PASSTHROUGH_STATE_H
#define SNT_VQP_PASSTHROUGH_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* What a QP keeps that passes WRs on: passthrough.h. */

/* The program's wr_ids of one queue of a pass-through lane, a ring by sequence number. */
struct snt__ids {
	uint64_t *id;
	uint32_t mask;
};

/* WRs that the device claims to have refused: refused_wr.h. */
struct snt__refused_wr {
	uint32_t first;	  /* sequence number of the first send that was refused */
	bool sends;	  /* there is one */
	bool sends_ended; /* the device has released all sends */
	bool recvs_ended; /* and of all receives */
};

#endif
