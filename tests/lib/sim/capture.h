/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_SIM_CAPTURE_H
#define SNT_DEV_SOFT_SIM_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Packets written to a file that Wireshark reads (pcapng, raw IP, nanoseconds), each
 * with the device that sent or received it. A comment says what became of one that
 * was lost.
 */

struct snt__sim_capture;

/* 0, or the errno of the file, with a sentence. */
int snt__sim_capture_open(const char *path, struct snt__sim_capture **capture_out);

/* From now on there is one interface more. Returns its number. */
unsigned snt__sim_capture_interface(struct snt__sim_capture *capture, const char *name);

/* comment: NULL for none. */
void snt__sim_capture_packet(struct snt__sim_capture *capture, unsigned interface,
			     bool inbound, uint64_t time_ns, const uint8_t *bytes,
			     size_t length, const char *comment);

/* 0, or the errno of whatever failed since it was opened. NULL is legal. */
int snt__sim_capture_close(struct snt__sim_capture *capture);

#endif
