/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_CORE_H
#define SNT_DEV_SOFT_CORE_H

#include "dev/soft/alloc.h"
#include "dev/soft/context.h"
#include "dev/soft/cq.h"
#include "dev/soft/device.h"
#include "dev/soft/event.h"
#include "dev/soft/fault.h"
#include "dev/soft/mad.h"
#include "dev/soft/memory.h"
#include "dev/soft/timer.h"

/*
 * The inside of a soft device, shared by its files:
 *
 *	device.c       creation, port, GIDs
 *	fault.c        faults on purpose
 *	context.c      contexts that programs have opened
 *	input.c        packets come in: to which QP
 *	burst.c        packets that stand for several
 *	output.c       packets go out: fairly over QPs; timers
 *	qp.h           the state of a QP, and its invariants
 *	qp.c           QPs are created and found
 *	state.c        their state machine
 *	flush.c        how WRs end: completions, errors, flushes
 *	post.c         posting
 *	requester.c    packets of requests, in order
 *	request.c      what is in them
 *	completer.c    responses complete requests
 *	recovery.c     recovery from loss
 *	probe.c        and from silence; round_trip.h says what is too long
 *	responder.c    requests from the peer are checked
 *	execute.c      and executed
 *	respond.c      packets of responses
 *	datagram.c     UD
 *	mad.c          QP 1
 *	memory.c       keys, access, SGE lists; register.c creates regions
 *	window.c       memory windows
 *	cq.c, recv.c, event.c, timer.c, alloc.c
 *	control.c      the table of verbs, and queries
 *
 * All state of a device is behind one lock, which is the driver's; verbs take it.
 */

struct snt__soft_qp;
struct snt__soft_source;

struct snt__soft_device {
	/* Used for each packet. */
	struct snt__soft_qp **qps; /* by the lower bits of a QP number */
	uint32_t qp_mask;
	uint32_t reads_bytes;	 /* of the responses that READs have asked for */
	struct snt__link active; /* QPs with something to send */
	struct snt__soft_memory memory;
	struct snt__soft_timers timers;
	struct snt__soft_stats stats;
	bool port_up;
	bool dead;
	struct snt__soft_fault fault;
	uint32_t burst_max; /* packets that the current input may stand for */
	const struct snt__soft_source *source; /* of its payload; NULL: it came along */
	uint64_t source_skip;		       /* bytes that were executed before */
	bool kicked; /* the driver has been told that there is something to send */
	const struct snt__soft_driver *driver;
	void *driver_arg;

	/* Used by verbs. */
	struct snt__soft_config limits; /* nothing zero; its pointers are not valid */
	struct snt__soft_mads mads;
	uint32_t *qp_free; /* a ring of table indices, the longest unused first */
	uint32_t qp_free_head;
	uint32_t qp_count;
	unsigned cq_count;
	unsigned armed_count; /* of CQs */
	unsigned srq_count;
	unsigned object_count; /* everything that verbs created */
	uint64_t guid;
	uint8_t gids[SNT__SOFT_GID_MAX][16];

	/* The part that programs see. */
	struct snt__link contexts;
	struct snt__soft_context first;
};

/* `users` counts MRs, windows, QPs, SRQs and AHs. */
struct snt__soft_pd {
	struct ibv_pd ibv;
	unsigned users;
};

static inline struct snt__soft_pd *snt__soft_pd(struct ibv_pd *pd)
{
	return snt__container(pd, struct snt__soft_pd, ibv);
}

static inline void snt__soft_lock(struct snt__soft_device *device)
{
	if (device->driver->lock)
		device->driver->lock(device->driver_arg);
}

static inline void snt__soft_unlock(struct snt__soft_device *device)
{
	if (device->driver->unlock)
		device->driver->unlock(device->driver_arg);
}

/* The same. Returns whether the driver must be told that there is something to send. */
static inline bool snt__soft_unlock_active(struct snt__soft_device *device)
{
	bool kick = !device->kicked && !snt__list_empty(&device->active);

	device->kicked |= kick;
	snt__soft_unlock(device);
	return kick;
}

/* Unlocks at the end of a verb after which there may be something to send. */
static inline void snt__soft_unlock_kick(struct snt__soft_device *device)
{
	if (snt__soft_unlock_active(device))
		device->driver->kick(device->driver_arg);
}

/* The same, for a verb that posts. */
static inline void snt__soft_unlock_post(struct snt__soft_device *device)
{
	if (!device->driver->post || device->kicked ||
	    snt__list_empty(&device->active)) {
		snt__soft_unlock_kick(device);
		return;
	}
	device->kicked = true;
	device->driver->post(device->driver_arg);
}

static inline uint64_t snt__soft_random(struct snt__soft_device *device)
{
	uint64_t value = 0;

	device->driver->random(device->driver_arg, &value, sizeof(value));
	return value;
}

/* input.c: a packet goes to its QP, or is counted as dropped. */
void snt__soft_deliver(struct snt__soft_device *device,
		       const struct snt__soft_path *path,
		       const struct snt__wire_packet *packet, uint64_t now);

/* Is there such an entry, and is it not empty? */
bool snt__soft_gid_valid(const struct snt__soft_device *device, unsigned index);
bool snt__soft_is_ipv4(const uint8_t gid[16]);

/* The path of an address vector. Returns 0, or -EINVAL: no GRH, no such source, or
 * source and target of different families. */
int snt__soft_path_init(const struct snt__soft_device *device,
			const struct ibv_ah_attr *attr, uint16_t source_port,
			struct snt__soft_path *path_out);

#endif
