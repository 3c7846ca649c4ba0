/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_SIM_H
#define SNT_DEV_SOFT_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/sim/capture.h"
#include "lib/sim/link.h"
#include "lib/sim/packet.h"
#include "lib/sim/queue.h"

/*
 * A fabric of soft devices in one thread and in virtual time.
 *
 *	snt__sim_create()	  the fabric, from one seed
 *	snt__sim_host_create()	  a host: what one snt_ctx runs on        (host.h)
 *	snt__sim_device_create()  a device of a host, with its cable      (device.h)
 *	snt__sim_trunk_create()	  a link that several devices share       (device.h)
 *
 * Devices hang on switches, whose own speed has no limit: without a trunk on the one
 * in the middle, with a trunk on one at the other end of that trunk. A packet goes
 * over its device's `out`, up and down the trunks in between, and over the target's
 * `in`. On each of these links it may be delayed, lost, doubled, damaged or overtaken
 * (link.h), and in the end it is checked like anything that comes from outside.
 *
 * Time stands still while the program computes and jumps to the next event when it
 * waits, that is, in snt__sim_step(), snt__sim_run(), when it blocks in a verb, and,
 * if the options say so, whenever it polls a CQ. The same seed and the same calls give
 * the same run, down to the last bit; snt__sim_hash() tells two runs apart.
 */

struct snt__sim_device;
struct snt__sim_host;
struct snt__sim_trunk;

struct snt__sim_opts {
	uint64_t seed;
	/* Every poll of a CQ first lets one event happen, so that programs which do
	 * nothing but poll get on. */
	bool poll_steps;
	/* How much time such a poll takes if there is no event; 0: 1000. */
	uint32_t poll_ns;
	const char *capture; /* a file for all packets; NULL: none */
};

struct snt__sim_stats {
	uint64_t events;
	uint64_t sent; /* by devices */
	uint64_t sent_bytes;
	uint64_t delivered; /* to devices, damaged ones not included */
	uint64_t delivered_bytes;
	uint64_t duplicated;
	uint64_t corrupted;
	uint64_t tolerated; /* damaged only where routers may write: delivered */
	uint64_t dropped[SNT__SIM_DROPS];
};

/* What a GID leads to. */
struct snt__sim_route {
	uint8_t gid[16];
	struct snt__sim_device *device;
};

struct snt__sim {
	struct snt__sim_opts opts;
	uint64_t now;
	uint64_t hash;
	uint64_t streams; /* of randomness, handed out so far */
	bool stepping;
	struct snt__sim_queue queue;
	struct snt__sim_pool pool;
	struct snt__sim_capture *capture;
	struct snt__sim_stats stats;
	struct snt__sim_host *hosts;
	struct snt__sim_trunk *trunks;
	struct snt__sim_call *calls;
	unsigned host_count, device_count;
	struct snt__sim_route *routes; /* hashed by GID */
	unsigned route_count, route_room;
};

/* 0; -ENOMEM; the errno of the capture file. */
int snt__sim_create(const struct snt__sim_opts *opts, struct snt__sim **sim_out);

/* Everything that is in it goes along. 0; -EBUSY while a device has objects that verbs
 * made, after which it can only be destroyed again; the errno of the capture file, when
 * all is gone. */
int snt__sim_destroy(struct snt__sim *sim);

/* Lets the next event happen. False: there is none. */
bool snt__sim_step(struct snt__sim *sim);

/* Lets everything happen up to and at this time, which it is then. */
void snt__sim_run(struct snt__sim *sim, uint64_t until_ns);

/* Lets everything happen until there is nothing left, or for so long. False: time is
 * up. */
bool snt__sim_run_idle(struct snt__sim *sim, uint64_t until_ns);

/* Calls a function at a time, for faults. 0 or -ENOMEM. */
int snt__sim_at(struct snt__sim *sim, uint64_t time_ns, void (*fn)(void *arg),
		void *arg);

/* A new stream of chance, which depends on nothing but the seed and on how many there
 * were before. */
uint64_t snt__sim_new_stream(struct snt__sim *sim);

static inline uint64_t snt__sim_now(const struct snt__sim *sim)
{
	return sim->now;
}

/* Of all that was delivered. */
static inline uint64_t snt__sim_hash(const struct snt__sim *sim)
{
	return sim->hash;
}

/* How many packets are under way. */
static inline uint64_t snt__sim_in_flight(const struct snt__sim *sim)
{
	return sim->pool.taken;
}

static inline const struct snt__sim_stats *snt__sim_stats(const struct snt__sim *sim)
{
	return &sim->stats;
}

const char *snt__sim_drop_text(enum snt__sim_drop drop);

#endif
