/* SPDX-License-Identifier: MIT */
#include "dev/soft/cm.h"

#include <errno.h>
#include <string.h>

#include "dev/soft/alloc.h"
#include "dev/soft/cm_address.h"
#include "util/assert.h"

#define MS UINT64_C(1000000)

/*
 * Creation
 */

#define DEFAULT(field, value)              \
	do {                               \
		if (!(field))              \
			(field) = (value); \
	} while (0)

static void fill_config(struct snt__soft_cm_config *config)
{
	DEFAULT(config->mtu, IBV_MTU_4096);
	DEFAULT(config->read_max, 16);
	DEFAULT(config->ack_timeout, 16);
	DEFAULT(config->connection_max, 1024);
	DEFAULT(config->linger_max, config->connection_max);
	DEFAULT(config->listener_max, 16);
	DEFAULT(config->resend_ns, 25 * MS);
	DEFAULT(config->resend_max_ns, 1600 * MS);
	DEFAULT(config->resend_count, 9);
	DEFAULT(config->wait_max_ns, 60000 * MS);
	DEFAULT(config->linger_ns, 12000 * MS);
}

static bool is_valid_cm_config(const struct snt__soft_cm_config *config)
{
	return config->random && snt__mtu_bytes(config->mtu) &&
	       config->ack_timeout <= 31 && config->connection_max <= 1 << 16 &&
	       config->linger_max <= 1 << 16 && config->listener_max <= 1 << 10 &&
	       config->resend_count <= 100 &&
	       config->resend_max_ns <= UINT64_C(1) << 40;
}

static int alloc_pools(struct snt__soft_cm *cm)
{
	uint32_t slots = snt__soft_ring_size(cm->pool_size), i;

	cm->id_bits = (unsigned)__builtin_ctz(slots);
	cm->heads_mask = slots - 1;
	cm->pool = snt__soft_alloc(cm->pool_size, sizeof(*cm->pool));
	cm->unused = snt__soft_alloc(cm->pool_size, sizeof(*cm->unused));
	cm->listeners =
		snt__soft_alloc(cm->config.listener_max, sizeof(*cm->listeners));
	if (!cm->pool || !cm->unused || !cm->listeners)
		return -ENOMEM;
	for (i = 0; i < SNT__SOFT_CM_INDICES; i++) {
		cm->heads[i] = snt__soft_alloc(slots, sizeof(cm->heads[i][0]));
		if (!cm->heads[i])
			return -ENOMEM;
	}
	for (i = 0; i < cm->pool_size; i++)
		cm->unused[i] = i;
	cm->unused_count = cm->pool_size;
	return snt__soft_timers_init(&cm->timers, cm->pool_size);
}

int snt__soft_cm_create(const struct snt__soft_cm_config *config,
			struct snt__soft_cm **cm_out)
{
	struct snt__soft_cm_config filled = *config;
	struct snt__soft_cm *cm;
	int err;

	fill_config(&filled);
	if (!is_valid_cm_config(&filled))
		return -EINVAL;
	cm = snt__soft_alloc(1, sizeof(*cm));
	if (!cm)
		return -ENOMEM;
	cm->config = filled;
	cm->pool_size = filled.connection_max + filled.linger_max;
	snt__list_init(&cm->active);
	snt__list_init(&cm->lingering);
	err = alloc_pools(cm);
	if (err) {
		snt__soft_cm_destroy(cm);
		return err;
	}
	*cm_out = cm;
	return 0;
}

void snt__soft_cm_destroy(struct snt__soft_cm *cm)
{
	if (!cm)
		return;
	snt__soft_timers_finish(&cm->timers);
	for (unsigned i = 0; i < SNT__SOFT_CM_INDICES; i++)
		snt__soft_free(cm->heads[i]);
	snt__soft_free(cm->listeners);
	snt__soft_free(cm->unused);
	snt__soft_free(cm->pool);
	snt__soft_free(cm);
}

/*
 * Connections
 */

/* Never 0, which means none, and different from the last id of the place. */
static uint32_t new_connection_id(const struct snt__soft_cm *cm, uint32_t place,
				  uint32_t last)
{
	const struct snt__seat seat = cm->config.seat;
	uint32_t id = (uint32_t)snt__soft_cm_random(cm) << cm->id_bits | place;

	id = snt__seat_mark(seat, id, SNT__SEAT_IN_ID);
	while (!id || id == last)
		id = snt__seat_mark(seat, id + (UINT32_C(1) << cm->id_bits),
				    SNT__SEAT_IN_ID);
	return id;
}

struct snt__soft_cm_connection *snt__soft_cm_take(struct snt__soft_cm_channel *channel,
						  enum snt__soft_cm_state state)
{
	struct snt__soft_cm *cm = channel->cm;
	struct snt__soft_cm_connection *connection;
	uint32_t place, last;

	if (cm->live == cm->config.connection_max)
		return NULL;
	place = cm->unused[cm->unused_head];
	cm->unused_head = (cm->unused_head + 1) % cm->pool_size;
	cm->unused_count--;
	cm->live++;
	connection = &cm->pool[place];
	last = connection->local_id;
	memset(connection, 0, sizeof(*connection));
	connection->channel = channel;
	channel->live++;
	connection->state = state;
	connection->passive = state == SNT__SOFT_CM_REQ_RECEIVED;
	connection->held = !connection->passive;
	connection->local_id = new_connection_id(cm, place, last);
	connection->local_psn = snt__soft_cm_random(cm) & SNT__PSN_MASK;
	connection->path.hop_limit = 64;
	return connection;
}

/* The program no longer holds the connection, or never will: its events are not
 * delivered. */
static void leave_channel(struct snt__soft_cm *cm,
			  struct snt__soft_cm_connection *connection)
{
	snt__assert(connection->channel && connection->channel->live && cm->live);
	snt__soft_cm_hush(connection);
	connection->held = false;
	connection->channel->live--;
	connection->channel = NULL;
	cm->live--;
}

void snt__soft_cm_give(struct snt__soft_cm *cm,
		       struct snt__soft_cm_connection *connection)
{
	uint32_t place = (uint32_t)(connection - cm->pool);

	snt__assert(connection->state != SNT__SOFT_CM_FREE);
	if (snt__linked(&connection->lingering)) {
		snt__unlink(&connection->lingering);
		cm->lingering_count--;
	} else {
		leave_channel(cm, connection);
	}
	snt__unlink(&connection->active);
	snt__soft_timer_remove(&cm->timers, &connection->timer);
	for (unsigned i = 0; i < SNT__SOFT_CM_INDICES; i++)
		snt__soft_cm_index_remove(cm, i, connection);
	connection->state = SNT__SOFT_CM_FREE;
	cm->unused[(cm->unused_head + cm->unused_count++) % cm->pool_size] = place;
}

void snt__soft_cm_linger(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection)
{
	leave_channel(cm, connection);
	cm->lingering_count++;
	snt__list_append(&cm->lingering, &connection->lingering);
	if (cm->lingering_count <= cm->config.linger_max)
		return;
	cm->stats.evicted++;
	snt__soft_cm_give(cm,
			  snt__container(cm->lingering.next,
					 struct snt__soft_cm_connection, lingering));
}

struct snt__soft_cm_connection *snt__soft_cm_find(struct snt__soft_cm *cm,
						  uint32_t local_id)
{
	uint32_t place = local_id & ((UINT32_C(1) << cm->id_bits) - 1);
	struct snt__soft_cm_connection *connection;

	if (place >= cm->pool_size)
		return NULL;
	connection = &cm->pool[place];
	if (connection->local_id != local_id ||
	    connection->state == SNT__SOFT_CM_FREE ||
	    connection->state == SNT__SOFT_CM_DONE)
		return NULL;
	return connection;
}

/*
 * Transitions
 */

#define STATE(name) (1u << SNT__SOFT_CM_##name)

/* The state machine of a connection; the other states are entered by
 * snt__soft_cm_take(), snt__soft_cm_give() and the timer. */
static bool may_enter(enum snt__soft_cm_state from, enum snt__soft_cm_state to)
{
	static const uint16_t after[] = {
		[SNT__SOFT_CM_IDLE] = STATE(REQ_SENT) | STATE(OVER),
		[SNT__SOFT_CM_REQ_SENT] = STATE(REP_RECEIVED) | STATE(OVER),
		[SNT__SOFT_CM_REP_RECEIVED] = STATE(ESTABLISHED) | STATE(OVER),
		[SNT__SOFT_CM_REQ_RECEIVED] = STATE(REP_SENT) | STATE(OVER),
		[SNT__SOFT_CM_REP_SENT] =
			STATE(ESTABLISHED) | STATE(DREQ_SENT) | STATE(OVER),
		[SNT__SOFT_CM_ESTABLISHED] = STATE(DREQ_SENT) | STATE(OVER),
		[SNT__SOFT_CM_DREQ_SENT] = STATE(OVER),
		[SNT__SOFT_CM_DONE] = 0,
	};

	return after[from] >> to & 1;
}

/* Is a message for the port still ours: a request, or one that comes again because it
 * has not been answered? */
static bool port_is_used(const struct snt__soft_cm *cm, uint16_t port)
{
	for (unsigned i = 0; i < cm->config.listener_max; i++)
		if (cm->listeners[i].id && cm->listeners[i].port == port)
			return true;
	for (unsigned i = 0; i < cm->pool_size; i++) {
		const struct snt__soft_cm_connection *connection = &cm->pool[i];

		if (connection->passive && connection->local_port == port &&
		    (connection->state == SNT__SOFT_CM_REQ_RECEIVED ||
		     connection->state == SNT__SOFT_CM_REP_SENT))
			return true;
	}
	return false;
}

static void release_port(struct snt__soft_cm *cm, uint16_t port)
{
	if (cm->config.unclaim && !port_is_used(cm, port))
		cm->config.unclaim(cm->config.arg, port);
}

void snt__soft_cm_enter(struct snt__soft_cm *cm,
			struct snt__soft_cm_connection *connection,
			enum snt__soft_cm_state state)
{
	snt__assert(may_enter(connection->state, state));
	connection->state = state;
	connection->tries = 0;
	connection->give_up_at = 0;
	snt__soft_timer_stop(&connection->timer);
	if (state >= SNT__SOFT_CM_DREQ_SENT)
		snt__soft_cm_index_remove(cm, SNT__SOFT_CM_BY_QPN, connection);
	if (connection->passive && state > SNT__SOFT_CM_REP_SENT)
		release_port(cm, connection->local_port);
	snt__soft_cm_activate(cm, connection);
}

void snt__soft_cm_finish(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection,
			 enum snt__cm_event_type event)
{
	connection->sending = 0;
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_OVER);
	if (connection->held)
		snt__soft_cm_raise(connection, event);
	else if (!snt__linked(&connection->lingering))
		snt__soft_cm_linger(cm, connection);
}

void snt__soft_cm_refuse(struct snt__soft_cm *cm,
			 struct snt__soft_cm_connection *connection, unsigned reason)
{
	connection->about = SNT__CM_ABOUT_OTHER;
	if (connection->passive)
		connection->about = SNT__CM_ABOUT_REQ;
	if (connection->state == SNT__SOFT_CM_REP_RECEIVED)
		connection->about = SNT__CM_ABOUT_REP;
	connection->reason = (uint16_t)reason;
	connection->refused = true;
	connection->sending = 0;
	snt__soft_cm_enter(cm, connection, SNT__SOFT_CM_OVER);
	snt__soft_cm_send(cm, connection, SNT__CM_REJ);
}

void snt__soft_cm_kill(struct snt__soft_cm *cm)
{
	cm->dead = true;
	for (unsigned i = 0; i < cm->pool_size; i++) {
		struct snt__soft_cm_connection *connection = &cm->pool[i];

		if (connection->held && connection->state < SNT__SOFT_CM_OVER)
			snt__soft_cm_finish(cm, connection, SNT__CM_EVENT_FAILED);
	}
}

/*
 * Listeners
 */

struct snt__soft_cm_listener *snt__soft_cm_listener_find(struct snt__soft_cm *cm,
							 const uint8_t gid[16],
							 uint16_t port)
{
	for (unsigned i = 0; i < cm->config.listener_max; i++) {
		struct snt__soft_cm_listener *listener = &cm->listeners[i];

		if (listener->id && listener->port == port &&
		    snt__soft_cm_covers(listener->gid, gid))
			return listener;
	}
	return NULL;
}

/* The first unused listener, or NULL. */
static struct snt__soft_cm_listener *listener_unused(struct snt__soft_cm *cm)
{
	for (unsigned i = 0; i < cm->config.listener_max; i++)
		if (!cm->listeners[i].id)
			return &cm->listeners[i];
	return NULL;
}

int snt__soft_cm_listen(struct snt__soft_cm_channel *channel, const uint8_t gid[16],
			uint16_t port, unsigned backlog, struct snt__cm_id *id,
			struct snt__soft_cm_listener **listener_out)
{
	struct snt__soft_cm *cm = channel->cm;
	struct snt__soft_cm_listener *listener = listener_unused(cm);
	int ret;

	for (unsigned i = 0; i < cm->config.listener_max; i++) {
		const struct snt__soft_cm_listener *other = &cm->listeners[i];

		if (other->id && other->port == port &&
		    (snt__soft_cm_covers(other->gid, gid) ||
		     snt__soft_cm_covers(gid, other->gid)))
			return -EADDRINUSE;
	}
	if (!listener)
		return -ENOBUFS;
	ret = cm->config.claim ? cm->config.claim(cm->config.arg, port) : 0;
	if (ret)
		return ret;
	*listener = (struct snt__soft_cm_listener){
		.id = id,
		.channel = channel,
		.port = port,
		.backlog = backlog,
	};
	memcpy(listener->gid, gid, 16);
	*listener_out = listener;
	return 0;
}

void snt__soft_cm_unlisten(struct snt__soft_cm *cm,
			   struct snt__soft_cm_listener *listener)
{
	struct snt__link *ready = &listener->channel->ready, *link = ready->next;

	while (link != ready) {
		struct snt__soft_cm_connection *connection =
			snt__container(link, struct snt__soft_cm_connection, ready);

		link = link->next;
		if (connection->listener != listener)
			continue;
		snt__soft_cm_refuse(cm, connection, SNT__CM_REASON_CONSUMER);
		snt__soft_cm_linger(cm, connection);
	}
	listener->id = NULL;
	release_port(cm, listener->port);
}
