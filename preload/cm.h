/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_CM_H
#define SNT_PRELOAD_CM_H

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "dev/cm.h"
#include "preload.h"
#include "real.h"
#include "util/list.h"

/*
 * rdma_cm on soft devices and on the kernel's devices at once.
 *
 *	cm_manager.c   the connection manager of soft devices, and the thread that
 *	               takes its events
 *	cm_channel.c   event channels and events
 *	cm_id.c        ids are created and destroyed
 *	cm_address.c   ids get addresses, and with these a device
 *	cm_connect.c   ids are connected
 *	cm_retry.c     refused connections are tried again
 *	cm_qp.c        what librdmacm creates for ids: QPs, CQs, SRQs
 *	cm_sync.c      ids without a channel, which wait for each event themselves
 *	cm_info.c      addresses by name, devices
 *
 * An id's kind, soft or real, is decided when it gets an address; one that listens on
 * all addresses is of both kinds. So ids, channels and events that programs see are
 * always ours; those of librdmacm are behind them, with their public members copied
 * after each call.
 */

struct snt__preload_channel {
	struct rdma_event_channel rdma;	 /* fd: of epoll, for the two below */
	struct rdma_event_channel *real; /* NULL: no RDMA in the kernel */
	int bell;			 /* readable while there are events */
	struct snt__link events; /* of soft ids; under the lock, like the bell */
};

struct snt__preload_id {
	struct rdma_cm_id rdma;
	struct rdma_cm_id *real; /* has this as its context; NULL: soft only */
	struct snt__cm_id *soft; /* has this as its user; from resolve or listen */
	struct snt__link all;	 /* in the process's list */
	bool is_soft;		 /* has an address of a soft device */
	bool bound;
	bool sync;	       /* has a channel of its own, and waits itself */
	bool over;	       /* its last event was taken */
	uint8_t ack_timeout;   /* 0: the device's */
	unsigned backlog;      /* of a listener */
	unsigned waiting;      /* requests to it that were not taken */
	unsigned events_taken; /* not acknowledged; they keep the id alive */
	struct ibv_sa_path_rec path;
	/* For retries; see cm_retry.c. */
	struct snt__link again;
	int64_t again_at;
	unsigned tries;
	struct snt__preload_event *refused;
	struct snt__cm_param param;
	uint8_t param_data[SNT__CM_REQUEST_DATA];

	struct ibv_qp_init_attr *qp_attr; /* of ids that it accepts */
	struct ibv_pd *qp_pd;
};

struct snt__preload_event {
	struct rdma_cm_event rdma;
	struct rdma_cm_event *real;    /* the original; NULL: it is of a soft id */
	struct snt__preload_id *owner; /* the id that waits for the acknowledgment */
	struct snt__link link;
	struct snt__cm_event soft; /* with the data that `rdma` points to */
};

static inline struct snt__preload_channel *snt__preload_channel(
	struct rdma_event_channel *channel)
{
	return (struct snt__preload_channel *)channel;
}

static inline struct snt__preload_id *snt__preload_id(struct rdma_cm_id *id)
{
	return (struct snt__preload_id *)id;
}

/*
 * The manager, which may be used with the lock only
 */

extern pthread_mutex_t snt__preload_cm_lock;
extern pthread_cond_t snt__preload_cm_acked;

/* With the lock. NULL and errno: there is none. */
struct snt__cm *snt__preload_cm(void);

/* Writes everything that is known of a soft id to its public part. With the lock. */
void snt__preload_id_update(struct snt__preload_id *id);
/* Binds an id to a device, before it has a soft or real part. */
void snt__preload_id_bind(struct snt__preload_id *id, unsigned device);

/* Queues an event of an id for its channel. With the lock. Returns 0 or -ENOMEM. */
int snt__preload_raise(struct snt__preload_id *id, enum rdma_cm_event_type type);
void snt__preload_queue(struct snt__preload_channel *channel,
			struct snt__preload_event *event);

/* Drops events that were not taken. With the lock. */
void snt__preload_purge(struct snt__preload_id *id);

/* Moves an id to another channel, with its events that were not taken. With the
 * lock. */
void snt__preload_move(struct snt__preload_id *id, struct snt__preload_channel *to);

/*
 * Retries; all with the lock
 */

/* Keeps the parameters of rdma_connect(). */
void snt__preload_retry_keep(struct snt__preload_id *id,
			     const struct snt__cm_param *param);
void snt__preload_retry_forget(struct snt__preload_id *id);
void snt__preload_retry_forget_all(void);
/* Is this a refusal that does not count yet? Then the event is kept here. */
bool snt__preload_retry(struct snt__preload_event *event);
/* Is this event part of a retry? If the retry fails, it becomes a failure. */
bool snt__preload_retry_resolved(struct snt__preload_event *event);
/* Starts the retries that are due. Returns the refusal of one that cannot start, or
 * NULL and perhaps the time of the next one. */
struct snt__preload_event *snt__preload_retry_due(int *timeout_ms_out);

/*
 * Ids
 */

/* A new id without a soft or real part; NULL and errno. Both with the lock. */
struct snt__preload_id *snt__preload_id_alloc(struct snt__preload_channel *channel,
					      void *context, enum rdma_port_space ps);

void snt__preload_id_free(struct snt__preload_id *id);

/* Copies what programs may have changed from our part to the real one, and back. */
void snt__preload_lend(struct snt__preload_id *id);
void snt__preload_mirror(struct snt__preload_id *id);

/* The real part is no longer needed. */
void snt__preload_drop_real(struct snt__preload_id *id);

/* Waits for the event that a call leads to, if the id is synchronous. Returns 0, or -1
 * and errno. */
int snt__preload_complete(struct snt__preload_id *id);

/* Moves an id's QP to a state. Returns 0 or a negative errno. With the lock. */
int snt__preload_qp_enter(struct snt__preload_id *id, enum ibv_qp_state state,
			  const struct rdma_conn_param *limits);

#endif
