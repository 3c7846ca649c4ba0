/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_CM_H
#define SNT_PRELOAD_CM_H

#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "dev/cm.h"
#include "preload/preload.h"
#include "preload/real.h"
#include "util/list.h"

/*
 * rdma_cm on soft devices and on others at once.
 *
 *	cm_manager.c   the connection manager of soft devices, and the thread that
 *	               takes its events
 *	cm_channel.c   event channels and events
 *	cm_id.c        ids are made and unmade
 *	cm_address.c   they get addresses, and with these a device
 *	cm_connect.c   and are connected
 *	cm_retry.c     not at the first try, perhaps
 *	cm_qp.c        what librdmacm makes for ids: QPs, CQs, SRQs
 *	cm_sync.c      ids without a channel, which wait for each event by themselves
 *	cm_info.c      addresses by name, devices
 *
 * Of which kind an id is comes out when it gets an address, and who listens on all
 * addresses is of both. So ids, channels and events that programs see are always ours; those
 * of librdmacm are behind them, with their public members copied after each call.
 */

struct snt__preload_channel {
	struct rdma_event_channel rdma;	 /* its fd is of epoll, for the two below */
	struct rdma_event_channel *real; /* NULL: no RDMA in the kernel */
	int bell;			 /* readable while there are events */
	struct snt__link events;	 /* of soft ids; under the lock, as the bell */
};

struct snt__preload_id {
	struct rdma_cm_id rdma;
	struct rdma_cm_id *real; /* whose context this is; NULL: soft only */
	struct snt__cm_id *soft; /* whose user this is; from resolve or listen on */
	struct snt__link all;	 /* of the process */
	bool is_soft;		 /* has an address of a soft device */
	bool bound;
	bool sync;	       /* has a channel of its own, and waits by itself */
	bool over;	       /* its last event was taken */
	uint8_t ack_timeout;   /* 0: the device's */
	unsigned backlog;      /* of a listener */
	unsigned waiting;      /* requests to it that were not taken */
	unsigned events_taken; /* and not acknowledged, nobody destroys it */
	struct ibv_sa_path_rec path;
	/* For another try; see cm_retry.c. */
	struct snt__link again;
	int64_t again_at;
	unsigned tries;
	struct snt__preload_event *refused;
	struct snt__cm_param param;
	uint8_t param_data[SNT__CM_REQUEST_DATA];

	struct ibv_qp_init_attr *qp_attr; /* of those who come to rdma_create_ep() */
	struct ibv_pd *qp_pd;
};

struct snt__preload_event {
	struct rdma_cm_event rdma;
	struct rdma_cm_event *real;    /* whose copy it is; NULL: it is of a soft id */
	struct snt__preload_id *owner; /* who waits for the acknowledgment */
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
 * The manager, which belongs to whoever has the lock
 */

extern pthread_mutex_t snt__preload_cm_lock;
extern pthread_cond_t snt__preload_cm_acked;

/* With the lock. NULL and errno: there is none. */
struct snt__cm *snt__preload_cm(void);

/* Everything that a soft id is known to have is written to its public part. With the
 * lock. */
void snt__preload_id_update(struct snt__preload_id *id);
/* Before there is anything else. */
void snt__preload_id_bind(struct snt__preload_id *id, unsigned device);

/* What happens to an id, for its channel. With the lock. Returns 0 or -ENOMEM. */
int snt__preload_raise(struct snt__preload_id *id, enum rdma_cm_event_type type);
void snt__preload_queue(struct snt__preload_channel *channel,
			struct snt__preload_event *event);

/* Forgets what was not taken. With the lock. */
void snt__preload_purge(struct snt__preload_id *id);

/* To another channel, with all that was not taken. With the lock. */
void snt__preload_move(struct snt__preload_id *id, struct snt__preload_channel *to);

/*
 * Another try; all with the lock
 */

/* What rdma_connect() was told. */
void snt__preload_retry_keep(struct snt__preload_id *id,
			     const struct snt__cm_param *param);
void snt__preload_retry_forget(struct snt__preload_id *id);
void snt__preload_retry_forget_all(void);
/* Is this a refusal that does not count yet? Then it is taken over. */
bool snt__preload_retry(struct snt__preload_event *event);
/* Is this a part of another try? If that fails, it becomes a failure. */
bool snt__preload_retry_resolved(struct snt__preload_event *event);
/* Begins with those whose time has come. Returns the refusal of one that cannot, or NULL and
 * perhaps when the next one is due. */
struct snt__preload_event *snt__preload_retry_due(int *timeout_ms_out);

/*
 * Ids
 */

/* A new one, with nothing behind it; NULL and errno. With the lock, as its end. */
struct snt__preload_id *snt__preload_id_alloc(struct snt__preload_channel *channel,
					      void *context, enum rdma_port_space ps);

void snt__preload_id_free(struct snt__preload_id *id);

/* From our part to the real one what programs may have changed, and back. */
void snt__preload_lend(struct snt__preload_id *id);
void snt__preload_mirror(struct snt__preload_id *id);

/* The real part is not needed any more. */
void snt__preload_drop_real(struct snt__preload_id *id);

/* Waits for the event that a call leads to, if the id is one that does. Returns 0, or -1
 * and errno. */
int snt__preload_complete(struct snt__preload_id *id);

/* The QP of an id goes to a state. Returns 0 or a negative errno. With the lock. */
int snt__preload_qp_enter(struct snt__preload_id *id, enum ibv_qp_state state,
			  const struct rdma_conn_param *limits);

#endif
