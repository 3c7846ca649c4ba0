/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_CM_LOOP_H
#define SNT_CONN_CM_LOOP_H

#include "conn/conn_loop.h"
#include "dev/cm.h"

/* The connection managers of a context: one for each kind of device that has one. */

#define SNT__CM_KINDS_MAX 4

/* One end of a connection: snt__cm_id::user points to it. */
struct snt__cm_end {
	void (*event)(struct snt__cm_end *end, const struct snt__cm_event *event);
};

struct snt__cm_manager {
	struct snt__cm *cm;
	struct snt__conn_loop *conn_loop;
	struct snt__watch watch;
	unsigned device_count;
	unsigned device
		[SNT_DEVICES_MAX]; /* the context's index of each of the manager's devices */
};

struct snt__cm_loop {
	unsigned count;
	struct snt__cm_manager manager[SNT__CM_KINDS_MAX];
};

/* Opens them if they are not open. -EOPNOTSUPP: no device has one. */
int snt__cm_loop_open(struct snt__conn_loop *conn_loop);

/* The addresses that can be connected from and listened on, as text for people. */
const char *snt__cm_loop_addresses(const struct snt__conn_loop *conn_loop, char *text,
				   size_t size);

/* Finds a manager with a route, whose events of the new id begin with RESOLVED or FAILED.
 * Returns: 0, or a negative errno, with a text that names the target. */
int snt__cm_loop_resolve(struct snt__conn_loop *conn_loop,
			 const struct sockaddr *source, const struct sockaddr *target,
			 struct snt__cm_manager **manager_out,
			 struct snt__cm_id **id_out);

/* For a refusal of the peer's connection manager: a text, in @buffer if it has a number, and a
 * negative errno. */
const char *snt__cm_reason_text(unsigned reason, char *buffer, size_t size);
int snt__cm_reason_error(unsigned reason);
/* The status of a manager's FAILED, in words. */
const char *snt__cm_failure_text(int status);

/* acceptor_cm.c: a peer requests a connection. */
void snt__cm_requested(struct snt__cm_manager *manager,
		       const struct snt__cm_event *event);

#endif
