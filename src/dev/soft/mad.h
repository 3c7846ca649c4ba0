/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_MAD_H
#define SNT_DEV_SOFT_MAD_H

#include "dev/soft/device.h"

/* QP 1. MADs are few and are sent before everything else. */

struct snt__soft_mad {
	struct snt__soft_path path;
	uint8_t bytes[SNT__SOFT_MAD_SIZE];
};

struct snt__soft_mads {
	const struct snt__soft_agent *agent; /* NULL: none */
	void *arg;
	struct snt__soft_mad *out; /* a ring with those of the last two outputs */
	uint32_t next;		   /* its next slot; wraps */
	uint32_t psn;
};

int snt__soft_mads_init(struct snt__soft_mads *mads);
void snt__soft_mads_finish(struct snt__soft_mads *mads);

/* A datagram to QP 1. */
void snt__soft_mad_input(struct snt__soft_device *device,
			 const struct snt__soft_path *path,
			 const struct snt__wire_packet *packet, uint64_t now);

/* Returns how many packets were filled in; at most SNT__SOFT_OUTPUT_MAX. */
unsigned snt__soft_mad_output(struct snt__soft_device *device,
			      struct snt__soft_packet *packets, unsigned max,
			      uint64_t now);

#endif
