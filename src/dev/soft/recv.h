/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_RECV_H
#define SNT_DEV_SOFT_RECV_H

#include "dev/soft/event.h"
#include "dev/soft/memory.h"

/*
 * Receive queues, of one QP or shared.
 *
 * A receive leaves its queue when the first packet of its message arrives and is copied
 * to the QP: meanwhile a shared queue may be posted to, and other QPs may take from it.
 */

struct snt__soft_recv_slot {
	uint64_t wr_id;
	uint32_t sge_count;
};

/* head and tail never wrap; tail - head is at most depth. */
struct snt__soft_recv_queue {
	struct ibv_pd *pd; /* that of its SGEs' keys */
	struct snt__soft_recv_slot *slots;
	struct ibv_sge *sges; /* sge_max for each slot */
	uint32_t mask;
	uint32_t depth;
	uint32_t sge_max;
	uint32_t head;
	uint32_t tail;
};

/* The receive that a QP is filling. */
struct snt__soft_recv {
	bool taken;
	uint32_t sge_count;
	uint64_t wr_id;
	uint64_t room; /* the total length of its SGEs */
	struct snt__soft_cursor cursor;
	struct ibv_sge *sges;
};

struct snt__soft_srq {
	struct ibv_srq ibv;
	struct snt__soft_recv_queue queue;
	uint32_t limit;
	struct snt__soft_object object;
};

static inline struct snt__soft_srq *snt__soft_srq(struct ibv_srq *srq)
{
	return snt__container(srq, struct snt__soft_srq, ibv);
}

int snt__soft_recv_queue_init(struct snt__soft_recv_queue *queue, struct ibv_pd *pd,
			      unsigned depth, unsigned sge_max);
void snt__soft_recv_queue_finish(struct snt__soft_recv_queue *queue);

/* Moves the oldest receive to the QP. False if there is none. */
bool snt__soft_recv_take(struct snt__soft_recv_queue *queue,
			 struct snt__soft_recv *recv);

/* Posts a chain. Returns 0 or an errno, positive as verbs have it. */
int snt__soft_recv_add(struct snt__soft_recv_queue *queue, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad_wr);

/* A receive was taken; raises the limit event when fewer than the limit are left. */
void snt__soft_srq_taken(struct snt__soft_srq *srq);

int snt__soft_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
			 struct ibv_srq **srq_out);
int snt__soft_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int snt__soft_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr_out);
int snt__soft_destroy_srq(struct ibv_srq *srq);
int snt__soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr);

#endif
