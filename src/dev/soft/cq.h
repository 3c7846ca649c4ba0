/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CQ_H
#define SNT_DEV_SOFT_CQ_H

#include "dev/soft/event.h"

/*
 * Completion queues and their channels.
 */

struct snt__soft_channel {
	struct ibv_comp_channel ibv;
	struct snt__soft_bell bell;
	struct snt__link cqs; /* with events that were not taken, in turn */
	unsigned users;
	bool muted;
};

enum snt__soft_armed {
	SNT__SOFT_ARMED_NOT,
	SNT__SOFT_ARMED_SOLICITED,
	SNT__SOFT_ARMED_ALL,
};

/* head and tail never wrap; the slot is the remainder. tail - head is at most ibv.cqe.
 * They are read without the lock to see that a queue is empty. */
struct snt__soft_cq {
	struct ibv_cq ibv;
	struct ibv_wc *ring;
	uint32_t mask;
	uint32_t head;
	uint32_t tail;
	uint8_t armed;
	bool overrun; /* its event was raised; there is only one */
	struct snt__soft_object object;
	struct snt__link ready; /* in the channel's list, while `events` */
	unsigned events;	/* not yet taken from the channel */
	unsigned events_taken;
	unsigned events_acked;
};

static inline struct snt__soft_cq *snt__soft_cq(struct ibv_cq *cq)
{
	return snt__container(cq, struct snt__soft_cq, ibv);
}

/* Adds a completion. Errors count as solicited. */
void snt__soft_cq_push(struct snt__soft_cq *cq, const struct ibv_wc *wc,
		       bool solicited);

int snt__soft_create_channel(struct ibv_context *context,
			     struct ibv_comp_channel **channel_out);
int snt__soft_destroy_channel(struct ibv_comp_channel *channel);
int snt__soft_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			struct ibv_comp_channel *channel, int vector,
			struct ibv_cq **cq_out);
int snt__soft_destroy_cq(struct ibv_cq *cq);
int snt__soft_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			   void **cq_context_out);
/* The same for a channel whose fd is known not to block: -EAGAIN if there is none. */
int snt__soft_take_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			    void **cq_context_out);
/* While a channel is muted its events do not make the fd readable: the thread that muted
 * it takes them afterwards. With the lock. NULL does nothing. */
void snt__soft_channel_mute(struct ibv_comp_channel *channel, bool muted);
void snt__soft_ack_cq_events(struct ibv_cq *cq, unsigned count);
int snt__soft_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int snt__soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);

#endif
