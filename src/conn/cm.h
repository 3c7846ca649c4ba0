/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CM_H
#define SNT_CONN_CM_H

#include "conn/carrier.h"

/* Messages on an RC QP that a connection manager (dev/cm.h) has brought about. */

/* @detect_ms: within how much time a peer that is gone is noticed. */
int snt__cm_connect(struct snt__hub *hub, const struct sockaddr *source,
		    const struct sockaddr *target, uint32_t detect_ms,
		    struct snt_conn *conn, struct snt__carrier **carrier_out);
int snt__cm_listen(struct snt__hub *hub, const struct sockaddr *address,
		   unsigned backlog, struct snt_listener *listener,
		   struct snt__ear **ear_out);

/* The managers themselves, which have nothing left to do. */
void snt__cm_hub_close(struct snt__hub *hub);

#endif
