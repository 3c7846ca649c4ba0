/* SPDX-License-Identifier: MIT */
#ifndef VQP_SIM_H
#define VQP_SIM_H

#include "lib/sim/device.h"
#include "vqp/vqp_model.h"
#include "lib/search.h"

/*
 * The model of the virtual QP (vqp_model.h) over soft devices: its checks and its
 * random WRs are the same, but packets and time are real ones, as far as a simulated
 * fabric goes, and so are the faults.
 */

enum fault {
	LOSS,
	DUPLICATE,
	CORRUPT,
	REORDER,
	JITTER,
	MIX,
	BANDWIDTH,
	/* After these WRs may fail. */
	CUT,
	LANE,	/* goes to ERR */
	DEVICE, /* dies */
	CLOSE,	/* an end is closed early */
	STOP,	/* lanes are stopped and begin again, as planned */
	FAULTS
};

/* What the model does not have: there is one world at a time. */
struct fabric {
	const struct search_plan *plan;
	struct snt__sim *sim;
	struct snt__sim_host *host[2];
	struct snt__sim_device *device[2][DEVICES_MAX];
	uint32_t faults;
	bool killed; /* a device has died */
};

extern struct fabric fabric;

/* vqp_sim_failover.c: the programs' own channel, which loses, doubles and reorders receipts.
 * Each returns 0, or -1 after wrong(). */
void forget_receipts(void);
int carry_receipts(struct world *world);
/* Says again what may have been lost; ends that wait for lanes try all of them. */
int urge(struct world *world);
int stop_lanes(struct world *world);
bool has_failover(const struct world *world);

static inline bool has(enum fault fault)
{
	return fabric.faults >> fault & 1;
}

#endif
