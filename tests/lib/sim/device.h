/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_DEVICE_H
#define SNT_DEV_SOFT_SIM_DEVICE_H

#include "dev/soft/device.h"
#include "lib/sim/host.h"

/* A link between two switches, which several devices share. */
struct snt__sim_trunk {
	struct snt__sim_trunk *next;
	struct snt__sim_link up; /* towards the switch in the middle */
	struct snt__sim_link down;
};

/* A soft device, its cable, and what the simulation knows of it. */
struct snt__sim_device {
	struct snt__sim *sim;
	struct snt__sim_host *host;
	struct snt__soft_device *core;
	const struct snt_adopted *adopted;
	struct snt__sim_trunk *trunk; /* NULL: on the switch in the middle */
	struct snt__sim_link out, in;
	uint64_t send_at, timer_at; /* of the events that count; UINT64_MAX: none */
	uint64_t random;
	uint32_t turnaround_ns;
	uint16_t identification;
	unsigned interface; /* in the capture */
	uint64_t sent_bytes, delivered_bytes;
	char name[24];
};

struct snt__sim_device_opts {
	/* Its cable: towards the switch, and from it. NULL: instantly, for nothing. */
	const struct snt__sim_link_opts *out, *in;
	struct snt__sim_trunk *trunk;
	/* From when something is to be sent until it is: what comes meanwhile is
	 * answered together. */
	uint32_t turnaround_ns;
	/* Its GIDs; NULL: one, made from the numbers of host and device. */
	const uint8_t (*gids)[16];
	unsigned gid_count;
	bool ipv6; /* of which kind the one is */
	/* Limits of the device. Name, driver and GIDs are filled in. */
	struct snt__soft_config config;
};

/*
 * Returns: 0; -E2BIG if the host has SNT_DEVICES_MAX already; -EEXIST if another device
 * has one of the GIDs; or as snt__soft_device_create().
 */
int snt__sim_device_create(struct snt__sim_host *host,
			   const struct snt__sim_device_opts *opts,
			   struct snt__sim_device **device_out);

/* For the fabric itself. 0 or -EBUSY. */
int snt__sim_device_destroy(struct snt__sim_device *device);

/* opts hold for both directions. 0 or -ENOMEM. */
int snt__sim_trunk_create(struct snt__sim *sim, const struct snt__sim_link_opts *opts,
			  struct snt__sim_trunk **trunk_out);

/*
 * Faults. Links have faults of their own, which may be changed at any time
 * (link->opts, link->cut).
 */

/* Both directions of its cable are cut, or restored, somewhere in the middle: the
 * device does not notice. */
void snt__sim_device_cut(struct snt__sim_device *device, bool cut);

/* The same, and the device does notice: its port goes down, or up. */
void snt__sim_device_set_port(struct snt__sim_device *device, bool up);

/* The device breaks down, and says so. */
void snt__sim_device_kill(struct snt__sim_device *device);

/*
 * Events, for the fabric.
 */

/* A packet for the device is here. */
void snt__sim_device_receive(struct snt__sim_device *device,
			     const struct snt__soft_path *path, const uint8_t *bytes,
			     size_t length);
void snt__sim_device_send(struct snt__sim_device *device);
void snt__sim_device_timer(struct snt__sim_device *device);

#endif
