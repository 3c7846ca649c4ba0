/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CQ_H
#define SNT_VQP_CQ_H

#include <sennit/cq.h>

#include "vqp/notify.h"
#include "vqp/qp.h"
#include "vqp/route.h"

/* One physical CQ and the CQEs that lanes have reserved in it. */
struct snt__physical {
	struct ibv_cq *cq;
	uint32_t device;
	uint32_t depth;
	uint32_t reserved;
	uint32_t due_rest; /* of its turns: less than one CQE, times reserved_max */
	bool adopted;
	bool armed;		 /* and no event taken since */
	uint32_t unacked;	 /* events that were taken */
	struct snt_qp *draining; /* QPs that wait until it has been found empty */
	struct snt_cq *owner;
};

/* Physical CQEs that are taken at once. */
#define SNT__BATCH 32

struct snt_cq {
	struct snt__cq_front front; /* first: programs' inline polls read it */
	struct snt__physical *physical;
	uint32_t physical_count;
	uint32_t turn;	       /* the physical CQ that is polled next */
	uint32_t turn_left;    /* CQEs left to it before the next one's turn */
	uint32_t reserved_max; /* of all physical CQs */
	struct snt__ready **ready_end;
	struct snt__route route;
	struct snt_ctx *ctx;
	struct snt_loop *loop; /* NULL: none */
	uint32_t physical_max;
	uint32_t depth;
	uint32_t comp_vector;
	uint32_t num;
	uint32_t qp_count;
	struct snt__link srqs; /* that report to it */
	uint64_t stray_count;
	void (*stray)(void *arg, unsigned device, const struct ibv_wc *wc);
	void *stray_arg;
	bool adopted;
	bool unpollable; /* a poll of a physical CQ has failed */
	struct snt__notify notify;
	struct snt__deferred_release deferred;
	struct ibv_wc batch[SNT__BATCH];
};

/*
 * Finds or adds a physical CQ on a device with room for this many CQEs, and if possible
 * with all the room that is wanted; the search begins with the hinted one. -ENOSPC with
 * both numbers if there cannot be one.
 */
int snt__cq_reserve(struct snt_cq *cq, unsigned device, uint32_t count, uint32_t room,
		    uint32_t hint, uint32_t *index_out);
/* The same in a physical CQ of the program's choice. */
int snt__cq_find(const struct snt_cq *cq, const struct ibv_cq *physical,
		 uint32_t *index_out);
int snt__cq_reserve_at(struct snt_cq *cq, uint32_t index, uint32_t count);
void snt__cq_unreserve(struct snt_cq *cq, uint32_t index, uint32_t count);

/* Destroys a CQ that has no QPs and was never given to the program. */
void snt__cq_abandon(struct snt_cq *cq);

/* A physical CQ is broken: -EIO, with a sentence that names its device. */
int snt__cq_cannot_poll(struct snt_cq *cq, const struct snt__physical *from);

/* Takes a QP off the list. */
void snt__cq_forget(struct snt_cq *cq, struct snt__ready *ready);

#endif
