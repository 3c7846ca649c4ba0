/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CQ_PHYSICAL_H
#define SNT_VQP_CQ_PHYSICAL_H

#include "vqp/cq.h"

/* The physical CQs of a virtual CQ, and the room in them that lanes have reserved. */

/* Adds a physical CQ on a device: this one or, if it is NULL, one that is created. */
int snt__cq_add_physical(struct snt_cq *cq, unsigned device_index,
			 struct ibv_cq *adopted);

/* Destroys all. Stops if a device refuses, so that it can be tried again. */
int snt__cq_free_physical(struct snt_cq *cq);

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

/* Acknowledges all events that were taken, before the CQ is destroyed. */
void snt__cq_ack(struct snt__physical *physical);

/* A physical CQ is broken: -EIO, with a sentence that names its device. */
int snt__cq_cannot_poll(struct snt_cq *cq, const struct snt__physical *from);

#endif
