/* SPDX-License-Identifier: MIT */
#ifndef CM_CHECK_H
#define CM_CHECK_H

#include "dev/soft/cm.h"

/* What always holds in a connection manager (cm.h), whenever no call is inside of
 * it. */

static inline bool cm_check_timer(const struct snt__soft_cm_connection *connection)
{
	return connection->timer.place && connection->timer.deadline != SNT__SOFT_NEVER;
}

static inline const char *cm_check_free(const struct snt__soft_cm_connection *c)
{
	if (snt__linked(&c->ready) || snt__linked(&c->active) ||
	    snt__linked(&c->lingering))
		return "a free connection is in a list";
	if (c->entry[0].present || c->entry[1].present || c->timer.place)
		return "a free connection is in an index, or has a timer";
	return c->held || c->listener || c->channel ? "a free connection is somebody's"
						    : NULL;
}

static inline const char *cm_check_one(struct snt__soft_cm *cm,
				       struct snt__soft_cm_connection *c)
{
	bool waits = c->listener != NULL;
	bool resends = c->state == SNT__SOFT_CM_REQ_SENT ||
		       c->state == SNT__SOFT_CM_REP_SENT ||
		       c->state == SNT__SOFT_CM_DREQ_SENT;
	bool by_qpn = c->state >= SNT__SOFT_CM_REP_RECEIVED &&
		      c->state <= SNT__SOFT_CM_ESTABLISHED;

	if (snt__linked(&c->lingering) != (!c->held && !waits))
		return "lingering is not what it should be";
	if (snt__linked(&c->lingering) != !c->channel)
		return "a connection has no channel, or has one and lingers";
	if (c->channel && c->channel->cm != cm)
		return "a connection has a channel of another device";
	if (waits && c->listener->channel != c->channel)
		return "a request is not where its listener is";
	if (snt__linked(&c->ready) != (c->pending != 0))
		return "ready without an event, or the other way round";
	if (waits != (c->pending >> SNT__CM_EVENT_REQUEST & 1) ||
	    (waits && (c->held || c->state != SNT__SOFT_CM_REQ_RECEIVED)))
		return "a request that waits does not";
	if (c->sending && !snt__linked(&c->active))
		return "a message is forgotten";
	if ((resends || c->state == SNT__SOFT_CM_OVER) && !cm_check_timer(c) &&
	    !snt__linked(&c->active))
		return "nothing will ever happen to a connection";
	if (!(resends || c->state == SNT__SOFT_CM_OVER) && cm_check_timer(c))
		return "a timer runs for nothing";
	if (c->entry[SNT__SOFT_CM_BY_ID].present !=
	    (c->passive && c->state != SNT__SOFT_CM_DONE))
		return "the index of ids is wrong";
	if (c->entry[SNT__SOFT_CM_BY_QPN].present != by_qpn)
		return "the index of QPs is wrong";
	if (by_qpn && snt__soft_cm_index_find(cm, SNT__SOFT_CM_BY_QPN, c->path.target,
					      c->remote_qpn) != c)
		return "two connections with one QP";
	if (c->passive && c->state != SNT__SOFT_CM_DONE &&
	    snt__soft_cm_index_find(cm, SNT__SOFT_CM_BY_ID, c->path.target,
				    c->remote_id) != c)
		return "two connections with one id";
	if (c->state == SNT__SOFT_CM_DONE && !c->held)
		return "a connection that is done is nobody's";
	return NULL;
}

/* NULL, or what is wrong. */
static inline const char *cm_check(struct snt__soft_cm *cm)
{
	unsigned live = 0, lingering = 0, waiting = 0;

	for (unsigned i = 0; i < cm->pool_size; i++) {
		struct snt__soft_cm_connection *c = &cm->pool[i];
		const char *wrong = c->state == SNT__SOFT_CM_FREE ? cm_check_free(c)
								  : cm_check_one(cm, c);

		if (wrong)
			return wrong;
		if (c->state == SNT__SOFT_CM_FREE)
			continue;
		lingering += snt__linked(&c->lingering);
		live += !snt__linked(&c->lingering);
		waiting += c->listener != NULL;
	}
	for (unsigned i = 0; i < cm->config.listener_max; i++) {
		const struct snt__soft_cm_listener *listener = &cm->listeners[i];

		if (listener->id && listener->waiting > listener->backlog)
			return "more requests wait than may";
		waiting -= listener->id ? listener->waiting : 0;
	}
	if (live != cm->live || lingering != cm->lingering_count || waiting)
		return "connections are counted wrongly";
	if (live > cm->config.connection_max || lingering > cm->config.linger_max ||
	    live + lingering + cm->unused_count != cm->pool_size)
		return "more connections than there may be";
	return NULL;
}

#endif
