/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_FRAME_H
#define SNT_DEV_SOFT_SIM_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "dev/soft/driver.h"

/*
 * A packet of the soft device as it stands on the wire: IPv4 or IPv6 by its
 * addresses, UDP, what the device wants to send, pad and ICRC.
 */

/* Writes all of it and returns how long it is. */
size_t snt__sim_frame_write(const struct snt__soft_packet *packet,
			    uint16_t identification, uint8_t *bytes);

/* The part of a frame that is a device's, from BTH to pad. */
struct snt__sim_frame {
	struct snt__soft_path path;
	const uint8_t *bytes;
	size_t length;
};

/*
 * Checks everything that a sound receiver checks, and that no router may change. 0,
 * or -EBADMSG.
 */
int snt__sim_frame_read(const uint8_t *bytes, size_t length,
			struct snt__sim_frame *frame_out);

#endif
