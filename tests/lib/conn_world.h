/* SPDX-License-Identifier: MIT */
#ifndef CONN_WORLD_H
#define CONN_WORLD_H

#include <stdbool.h>
#include <sennit/sennit.h>

#include "lib/sim/device.h"
#include "lib/sim/host.h"
#include "lib/sim/sim.h"

/*
 * Two hosts on a simulated fabric, which connect by address in virtual time. What goes
 * wrong is a text; NULL means that nothing did.
 */

#define CONN_BYTES   32768
#define CONN_DEVICES 3
#define CONN_MS	     UINT64_C(1000000)

struct conn_end {
	struct snt__sim_host *host;
	struct snt__sim_device *device[CONN_DEVICES];
	unsigned devices;
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_mem *mem;
	struct snt_token token;
	struct snt_conn *conn;
	struct snt_qp_opts qp;
	uint8_t bytes[CONN_BYTES];
	unsigned events[8];
	bool reject;
	bool stays; /* does not disconnect when the peer does */
};

struct conn_world {
	struct snt__sim *sim;
	struct conn_end end[2]; /* the one that connects, the one that listens */
	struct snt_listener *listener;
	struct snt_endpoint to, at; /* to connect to, to listen at */
	struct snt_conn_opts connect, accept;
	struct snt_listener_opts listen;
};

const char *conn_world_open(struct conn_world *world, uint64_t seed);
/* Before conn_world_ready(). */
const char *conn_world_add_device(struct conn_world *world, unsigned end,
				  const struct snt__sim_device_opts *opts);
/* Contexts, loops, memory; options are filled in. */
const char *conn_world_ready(struct conn_world *world);
/* Listens, and begins to connect. */
const char *conn_world_connect(struct conn_world *world);

/* Whatever is next happens, at most until this time. False: nothing will any more. */
bool conn_world_step(struct conn_world *world, uint64_t until);
/* Until both ends have had this event, or the first has had the other one. */
const char *conn_world_run(struct conn_world *world, enum snt_conn_event event,
			   uint64_t patience_ns);
int conn_world_status(const struct conn_world *world, unsigned end);
const char *conn_world_text(const struct conn_world *world, unsigned end);

/* Bytes from one end to the other, with a notification. */
const char *conn_world_send(struct conn_world *world, unsigned from, uint8_t salt);
/* The same, and disconnects at once; when both are over, the bytes are there. */
const char *conn_world_leave(struct conn_world *world, unsigned from);

/* All that is there goes, and nothing may be left. */
const char *conn_world_close(struct conn_world *world);

#endif
