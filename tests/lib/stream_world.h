/* SPDX-License-Identifier: MIT */
#ifndef STREAM_WORLD_H
#define STREAM_WORLD_H

#include <stdbool.h>
#include <sennit/sennit.h>

#include "lib/sim/device.h"
#include "lib/sim/host.h"
#include "lib/sim/sim.h"

/*
 * Two ends of streams in one process: on a simulated fabric in virtual time, or on the
 * devices that there are (SENNIT_DEVICES, SENNIT_SOFT). What goes wrong is a text; NULL
 * means that nothing did.
 */

#define WORLD_DEVICES 2
#define WORLD_MS      UINT64_C(1000000)

struct world_end {
	struct snt__sim_host *host;
	struct snt__sim_device *device[WORLD_DEVICES];
	unsigned devices;
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq;
	struct snt_qp *qp; /* by cards */
	struct snt_stream *stream;
	struct snt_stream_opts opts;
	struct snt_qp_opts qp_opts; /* by cards */
};

struct world {
	bool real;
	bool by_card;
	bool polls; /* nothing is armed; only by cards */
	struct snt__sim *sim;
	struct world_end end[2]; /* the one that connects, the one that listens */
	struct snt_stream_listener *listener;
	struct snt_stream_listener_opts listen;
	struct snt_endpoint at, to; /* `to` is set by world_listen() */
	char host[64];
};

/* Of the CQs that are made from now on. */
extern uint32_t world_cq_depth;

/* `real`: not simulated. */
const char *world_open(struct world *world, bool real, uint64_t seed,
		       const char *capture);
/* Only of a simulated one, before world_ready(). */
const char *world_add_device(struct world *world, unsigned end,
			     const struct snt__sim_device_opts *opts);
/* Contexts and loops; options are filled in, and may be changed. */
const char *world_ready(struct world *world);
const char *world_listen(struct world *world);
/* Begins. By cards both ends are there when it returns; by address the second end's
 * stream is set when it is accepted. */
const char *world_connect(struct world *world);
/* Until both are open. */
const char *world_connected(struct world *world);
/* All of that, with one device each on a perfect network. */
const char *world_simple(struct world *world, bool real);

uint64_t world_now(const struct world *world);
/* Whatever is next happens, at most until this time. False: nothing will any more, or it
 * is that time. */
bool world_step(struct world *world, uint64_t until);
/* The time at which something happens next; UINT64_MAX: never. */
uint64_t world_next(const struct world *world);

/* Soft devices' RNR NAKs, all in all. */
uint64_t world_rnr(const struct world *world);

/* All that is there goes, streams too, and nothing may be left. */
const char *world_close(struct world *world);

#endif
