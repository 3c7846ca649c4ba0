/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_REORDER_H
#define SNT_VQP_REORDER_H

#include "vqp/qp.h"

/* What has arrived of DQPLB, and is not yet reported: dqplb.c. */

/* Of an arrival. */
enum {
	SNT__ARRIVED = 1,
	SNT__ENDS = 2, /* a message */
};

struct snt__arrival {
	uint32_t length;
	uint32_t imm;
	uint8_t state;
};

struct snt__reorder {
	uint32_t window;   /* a power of two */
	uint32_t far;	   /* an honest peer is never this far ahead */
	uint32_t expected; /* of 24 bits, as on the wire */
	/* Arrivals that are not in order: those in the window, early ones, announced
	 * raw immediates. Also non-zero once the QP is broken. */
	uint32_t irregular;
	uint32_t stashed; /* on all lanes */
	uint64_t length;  /* of the message being received */
	bool blocked;	  /* a complete message waits for a receive */
	struct snt__arrival arrival[];
};

/* Nothing is in order any more. */
static inline void snt__dqplb_break(struct snt_qp *qp)
{
	qp->reorder->irregular++;
}

#endif
