/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CM_H
#define SNT_DEV_SOFT_CM_H

#include "dev/cm.h"
#include "dev/soft/cm_wire.h"
#include "dev/soft/driver.h"
#include "dev/soft/seat.h"
#include "util/list.h"
#include "dev/soft/timer.h"

/*
 * The connection manager of a soft device, without I/O: like the transport it has no
 * clock, thread, lock or randomness of its own, and allocates only when it is created.
 * A device has one, for all managers of dev/cm.h that use the device. Each of these has
 * an event channel; a connection and a listener belong to one channel at a time.
 *
 *	cm.c          creation; connections and listeners come from fixed pools
 *	cm_index.c    connections by the peer's id of them
 *	cm_call.c     calls of the program
 *	cm_event.c    events for the program
 *	cm_input.c    messages from peers
 *	cm_output.c   messages to peers; retransmission and time
 *	cm_wire.c     the format of messages
 *	cm_manager.c  managers: channels of several devices, behind the devices' locks
 *	cm_address.c  addresses, in the form that programs use
 *	cm_table.c    the table of dev/cm.h
 *
 * A connection:
 *
 *	active    IDLE -> REQ_SENT -> REP_RECEIVED -> ESTABLISHED
 *	passive   REQ_RECEIVED -> REP_SENT -> ESTABLISHED
 *	both      ... -> DREQ_SENT -> OVER -> DONE, or free
 *
 * Every message that needs an answer (REQ, REP, DREQ) is sent again, at growing
 * intervals, until the answer comes or the retries are used up; an MRA asks for more
 * time. A message that is an answer (REP again, RTU, MRA, REJ, DREP) is sent again
 * whenever the message that it answers comes again. So a connection that is OVER is
 * kept for a while: it repeats its refusals, and an old REQ is not mistaken for a new
 * one.
 *
 * Two ids name a connection, one chosen by each end. Ours has the place in the pool in
 * its lower bits; the others are random. A message must also come from the address of
 * the connection's peer.
 *
 * Invariants:
 *	- a connection is in `active` if it has something to send, or a timer to start:
 *	  time is known only in input and output
 *	- it is in its channel's `ready` if `pending` is not 0
 *	- it is in `lingering` if the program does not hold it and it is not a request that
 *	  waits to be taken; then it has no channel, so that a channel can be closed while
 *	  peers are still being told
 *	- `live` counts those that are neither free nor lingering: at most connection_max, of
 *	  all channels together; at most linger_max linger, and the oldest makes room
 */

/* Zero means the default that is given. */
struct snt__soft_cm_config {
	void (*random)(void *arg, void *buffer, size_t length);
	/* Reserves a port among the processes that share the device's address, or gives
	 * it back. 0; -EADDRINUSE or another errno. NULL: nothing is shared. */
	int (*claim)(void *arg, uint16_t port);
	void (*unclaim)(void *arg, uint16_t port);
	void *arg;

	/* The device's properties. */
	uint64_t guid;
	struct snt__seat seat;
	uint8_t mtu;	      /* enum ibv_mtu: IBV_MTU_4096 */
	uint8_t read_max;     /* READs and atomics of a QP: 16 */
	unsigned ack_timeout; /* of QPs, as in ibv_qp_attr: 16, which is 268 ms */

	unsigned connection_max; /* 1024; at most 1 << 16 */
	unsigned linger_max;	 /* connection_max */
	unsigned listener_max;	 /* 16 */

	/* The first interval, the longest, and how many of them follow the first. Each
	 * is lengthened by a random part, of up to a quarter. */
	uint64_t resend_ns;	/* 25 ms */
	uint64_t resend_max_ns; /* 1.6 s */
	unsigned resend_count;	/* 9 */
	/* The most time, altogether, that peers can ask for. */
	uint64_t wait_max_ns; /* 60 s */
	/* How long a connection that is OVER is remembered: longer than peers retry. */
	uint64_t linger_ns; /* 12 s */
};

enum snt__soft_cm_state {
	SNT__SOFT_CM_FREE,
	SNT__SOFT_CM_IDLE,
	SNT__SOFT_CM_REQ_SENT,
	SNT__SOFT_CM_REP_RECEIVED, /* the program is to establish, or to reject */
	SNT__SOFT_CM_REQ_RECEIVED, /* the program is to accept, or to reject */
	SNT__SOFT_CM_REP_SENT,
	SNT__SOFT_CM_ESTABLISHED,
	SNT__SOFT_CM_DREQ_SENT,
	SNT__SOFT_CM_OVER,
	SNT__SOFT_CM_DONE, /* only the program still has it */
};

/* What the program holds. */
struct snt__soft_cm_handle {
	struct snt__cm_id id;
	bool listens;
};

enum snt__soft_cm_index {
	SNT__SOFT_CM_BY_ID,  /* connections that began with the peer's REQ */
	SNT__SOFT_CM_BY_QPN, /* those that are, or may become, established */
	SNT__SOFT_CM_INDICES
};

struct snt__soft_cm_entry {
	struct snt__soft_cm_connection *next;
	uint32_t number;
	bool present;
};

/* Where events go. The caller's memory, which must not move while the channel is
 * open. */
struct snt__soft_cm_channel {
	struct snt__soft_cm *cm;
	void (*wake)(void *arg); /* there is an event now, after there was none */
	void *arg;
	struct snt__link ready; /* connections with events */
	unsigned live;		/* connections of this channel */
};

struct snt__soft_cm_connection {
	struct snt__soft_cm_handle handle;
	struct snt__soft_cm_channel *channel;	/* NULL: free, or lingering */
	struct snt__soft_cm_listener *listener; /* REQUEST is pending */
	struct snt__soft_cm_entry entry[SNT__SOFT_CM_INDICES];
	struct snt__link ready;
	struct snt__link active;
	struct snt__link lingering;
	struct snt__soft_timer timer;
	uint8_t state;
	bool passive;
	bool held;    /* by the program */
	bool final;   /* the program has been, or will be, told that it is over */
	bool refused; /* by us: OVER, and a repeated message is answered with a REJ */
	uint8_t pending; /* events: a bit for each enum snt__cm_event_type */
	uint8_t sending; /* messages: a bit for each kind, from SNT__CM_REQ on */
	uint8_t tries;
	bool was_sent; /* at least once: REQ, REP */
	uint64_t give_up_at;
	uint32_t local_id;
	uint32_t remote_id;
	uint64_t transaction;

	/* Messages go to path.target. */
	struct snt__soft_path path;
	uint16_t local_port;
	uint16_t peer_port;

	/* The QPs. */
	uint32_t local_qpn;
	uint32_t remote_qpn;
	uint32_t local_psn; /* at which our QP receives */
	uint32_t remote_psn;
	uint32_t flow_label;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t mtu;
	uint8_t ack_timeout;
	bool local_srq;
	bool remote_srq;
	/* For our QP, as in ibv_qp_attr. */
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	/* Asked of the peer's QP. */
	uint8_t offered_resources;
	uint8_t offered_depth;
	uint8_t offered_rnr_retry_count;

	/* Private data: the REQ's, later that of REP or REJ, in either direction; the
	 * two are never needed at the same time. */
	uint16_t reason; /* of a REJ, in either direction */
	uint8_t about;
	uint8_t answer_length;
	uint8_t request[SNT__CM_REQUEST_DATA];
	uint8_t answer[SNT__CM_RESPONSE_DATA];
};

struct snt__soft_cm_listener {
	struct snt__cm_id *id; /* NULL: not in use */
	struct snt__soft_cm_channel *channel;
	uint8_t gid[16]; /* 0: all; an IPv4 one of 0: all of IPv4 */
	uint16_t port;
	unsigned backlog;
	unsigned waiting; /* requests that the program has not taken */
};

/* An answer to a message that belongs to no connection. */
struct snt__soft_cm_note {
	struct snt__soft_path path;
	struct snt__cm_message message; /* without data */
};

#define SNT__SOFT_CM_NOTES 64

struct snt__soft_cm_stats {
	uint64_t received;
	uint64_t malformed;
	uint64_t unknown; /* they belong to no connection */
	uint64_t duplicates;
	uint64_t refused; /* requests that were refused without asking the program */
	uint64_t sent;
	uint64_t resent; /* because no answer came */
	uint64_t given_up;
	uint64_t evicted; /* removed early from those that linger */
};

struct snt__soft_cm {
	struct snt__soft_cm_config config; /* nothing zero */
	struct snt__soft_cm_connection *pool;
	unsigned pool_size;
	unsigned id_bits; /* the bits of a local id that are the place in the pool */
	uint32_t *unused; /* a ring of free places, the longest unused first */
	uint32_t unused_head;
	uint32_t unused_count;
	unsigned channel_count;
	bool dead; /* of the device */
	unsigned live;
	unsigned lingering_count;
	struct snt__soft_cm_connection **heads[SNT__SOFT_CM_INDICES];
	uint32_t heads_mask;
	uint64_t secret; /* of the index, so that peers cannot aim at one chain */
	struct snt__soft_cm_listener *listeners;
	struct snt__link active;
	struct snt__link lingering;
	struct snt__soft_timers timers;
	struct snt__soft_cm_note notes[SNT__SOFT_CM_NOTES];
	uint32_t note_head;
	uint32_t note_tail;
	struct snt__soft_cm_stats stats;
};

/* 0; -EINVAL for numbers out of range; -ENOMEM. */
int snt__soft_cm_create(const struct snt__soft_cm_config *config,
			struct snt__soft_cm **cm_out);
/* Connections under way are dropped without telling their peers. */
void snt__soft_cm_destroy(struct snt__soft_cm *cm);

/* How long a message is repeated at most before its sender gives up. */
uint64_t snt__soft_cm_patience_ns(const struct snt__soft_cm *cm);

/*
 * Called by the device.
 */

void snt__soft_cm_input(struct snt__soft_cm *cm, const struct snt__soft_path *path,
			const uint8_t mad[SNT__CM_MAD_SIZE], uint64_t now);
/* False: there is nothing to send. The device chooses a source port where it is 0. */
bool snt__soft_cm_output(struct snt__soft_cm *cm, struct snt__soft_path *path_out,
			 uint8_t mad_out[SNT__CM_MAD_SIZE], uint64_t now);
uint64_t snt__soft_cm_deadline(struct snt__soft_cm *cm);
void snt__soft_cm_timer(struct snt__soft_cm *cm, uint64_t now);
/* The device is dead: all connections of programs fail, with -ENODEV. */
void snt__soft_cm_kill(struct snt__soft_cm *cm);

/*
 * Called by programs, see the table of dev/cm.h. After any of these there may be
 * something to send.
 */

/* The caller has filled in `wake` and `arg`. No other call comes before the first
 * channel is open; randomness is first used then. */
void snt__soft_cm_channel_open(struct snt__soft_cm *cm,
			       struct snt__soft_cm_channel *channel);
/* It has neither connections nor listeners. */
void snt__soft_cm_channel_close(struct snt__soft_cm_channel *channel);

/* 0; -EADDRINUSE, also if the other listener is in another channel; -ENOBUFS. The port
 * is not 0. */
int snt__soft_cm_listen(struct snt__soft_cm_channel *channel, const uint8_t gid[16],
			uint16_t port, unsigned backlog, struct snt__cm_id *id,
			struct snt__soft_cm_listener **listener_out);
/* Waiting requests are refused. */
void snt__soft_cm_unlisten(struct snt__soft_cm *cm,
			   struct snt__soft_cm_listener *listener);
/* 0 or -ENOBUFS. */
int snt__soft_cm_resolve(struct snt__soft_cm_channel *channel, const uint8_t source[16],
			 const uint8_t target[16], uint16_t port,
			 struct snt__soft_cm_connection **connection_out);
int snt__soft_cm_connect(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection,
			 const struct snt__cm_param *param);
int snt__soft_cm_accept(struct snt__soft_cm *cm,
			struct snt__soft_cm_connection *connection,
			const struct snt__cm_param *param);
int snt__soft_cm_reject(struct snt__soft_cm *cm,
			struct snt__soft_cm_connection *connection, const void *data,
			size_t length);
int snt__soft_cm_establish(struct snt__soft_cm *cm,
			   struct snt__soft_cm_connection *connection);
void snt__soft_cm_notify(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection);
int snt__soft_cm_disconnect(struct snt__soft_cm *cm,
			    struct snt__soft_cm_connection *connection);
/* Moves a connection and its events to another channel of the same machine. 0 or
 * -ENOTCONN: it is not a request that was taken and not answered. */
int snt__soft_cm_move(struct snt__soft_cm_connection *connection,
		      struct snt__soft_cm_channel *to);
/* The program releases it. */
void snt__soft_cm_release(struct snt__soft_cm *cm,
			  struct snt__soft_cm_connection *connection);
/* Fills in everything except the index of the source GID, which is path.source. 0,
 * -ENOTCONN or -EINVAL. */
int snt__soft_cm_qp_attr(const struct snt__soft_cm *cm,
			 const struct snt__soft_cm_connection *connection,
			 struct ibv_qp_attr *attr, int *mask_out);

/*
 * Shared by the files.
 */

static inline struct snt__soft_cm_connection *snt__soft_cm_of(struct snt__cm_id *id)
{
	return snt__container(id, struct snt__soft_cm_connection, handle.id);
}

/* Has `active` visit the connection soon. */
static inline void snt__soft_cm_activate(struct snt__soft_cm *cm,
					 struct snt__soft_cm_connection *connection)
{
	if (!snt__linked(&connection->active))
		snt__list_append(&cm->active, &connection->active);
}

static inline void snt__soft_cm_send(struct snt__soft_cm *cm,
				     struct snt__soft_cm_connection *connection,
				     enum snt__cm_kind kind)
{
	connection->sending |= 1u << (kind - SNT__CM_REQ);
	snt__soft_cm_activate(cm, connection);
}

static inline uint64_t snt__soft_cm_random(const struct snt__soft_cm *cm)
{
	uint64_t value = 0;

	cm->config.random(cm->config.arg, &value, sizeof(value));
	return value;
}

/* cm.c */
/* NULL: too many. It is the program's or, if passive, waits to be taken. */
struct snt__soft_cm_connection *snt__soft_cm_take(struct snt__soft_cm_channel *channel,
						  enum snt__soft_cm_state state);
void snt__soft_cm_give(struct snt__soft_cm *cm,
		       struct snt__soft_cm_connection *connection);
/* The program no longer has it. */
void snt__soft_cm_linger(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection);
/* By our id. NULL: there is none. */
struct snt__soft_cm_connection *snt__soft_cm_find(struct snt__soft_cm *cm,
						  uint32_t local_id);
/* The listener for an address and port, or NULL. */
struct snt__soft_cm_listener *snt__soft_cm_listener_find(struct snt__soft_cm *cm,
							 const uint8_t gid[16],
							 uint16_t port);
/* Enters a state, and starts or stops the timer for an answer. */
void snt__soft_cm_enter(struct snt__soft_cm *cm,
			struct snt__soft_cm_connection *connection,
			enum snt__soft_cm_state state);
/* Makes it OVER and tells the program, unless that knows. */
void snt__soft_cm_finish(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection,
			 enum snt__cm_event_type event);
/* The same by a REJ of ours, of which the program knows. */
void snt__soft_cm_refuse(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection, unsigned reason);

/* cm_index.c: by the peer's address and one of its numbers. */
void snt__soft_cm_index_add(struct snt__soft_cm *cm, enum snt__soft_cm_index index,
			    struct snt__soft_cm_connection *connection,
			    uint32_t number);
void snt__soft_cm_index_remove(struct snt__soft_cm *cm, enum snt__soft_cm_index index,
			       struct snt__soft_cm_connection *connection);
/* NULL: there is none. There are never two. */
struct snt__soft_cm_connection *snt__soft_cm_index_find(const struct snt__soft_cm *cm,
							enum snt__soft_cm_index index,
							const uint8_t gid[16],
							uint32_t number);

/* cm_event.c */
void snt__soft_cm_raise(struct snt__soft_cm_connection *connection,
			enum snt__cm_event_type type);
/* Drops its pending events. */
void snt__soft_cm_hush(struct snt__soft_cm_connection *connection);
/* 0 or -EAGAIN. A connection whose REQUEST is taken is the program's. */
int snt__soft_cm_next_event(struct snt__soft_cm_channel *channel,
			    struct snt__cm_event *event_out);

#endif
