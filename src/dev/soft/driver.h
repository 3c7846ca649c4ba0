/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_DRIVER_H
#define SNT_DEV_SOFT_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "dev/soft/wire.h"

/*
 * The seam between a soft device and whatever carries its packets.
 *
 * The device is a transport without I/O: it has no clock, socket, thread,
 * randomness or lock of its own, and allocates only when something is created or
 * registered. A driver feeds it packets and time, and takes packets out:
 *
 *	snt__soft_input()     a packet has arrived
 *	snt__soft_output()    what is to be sent, until it returns 0
 *	snt__soft_deadline()  when snt__soft_timer() wants to be called
 *	snt__soft_timer()     time has passed
 *
 * These four are called with the device's lock held, if it has one. After input and
 * timer there may be something for output. Output has nothing left once it returned
 * 0, until the next input, timer or kick. The same calls in the same order have the
 * same results, byte by byte.
 *
 * Time is in nanoseconds, from any beginning, and never goes back.
 */

struct snt__soft_device;

/* The most SGEs of a WR, and so the most pieces of a packet's payload. */
#define SNT__SOFT_SGE_MAX 32

/* The most packets that are output at once. */
#define SNT__SOFT_OUTPUT_MAX 128

/* Never: a deadline that does not come. */
#define SNT__SOFT_NEVER UINT64_MAX

/* From where to where a packet goes. Addresses are as in a GID: that of IPv4 is a
 * mapped one (::ffff:a.b.c.d). The target's port is SNT__WIRE_PORT. */
struct snt__soft_path {
	uint8_t source[16];
	uint8_t target[16];
	uint32_t flow_label;
	uint16_t source_port;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

/*
 * A packet to be sent. IP, UDP, pad and ICRC are the driver's, who derives the pad
 * from the payload's length (snt__wire_pad, snt__icrc_seal).
 *
 * What it points to stays valid until the next call into the device, or into verbs on
 * it, and is to be read only until then; but output may be called once more in between,
 * for what is to follow. Consecutive packets with the same `path`
 * pointer, header length and payload length are a run that segmentation offload can
 * send as one; the middle packets of a message come as long runs.
 */
struct snt__soft_packet {
	const struct snt__soft_path *path;
	uint32_t payload_length;
	uint8_t payload_count;
	uint8_t header_length;
	uint8_t header[SNT__WIRE_HEADER_MAX];
	struct iovec payload[SNT__SOFT_SGE_MAX];
};

/* What a driver gives to a device. All take the argument that came with it. */
struct snt__soft_driver {
	/* Fills the buffer: for QP numbers, keys and UDP source ports. */
	void (*random)(void *arg, void *buffer, size_t length);
	/* Around every verb, and what drivers hold to call the four functions.
	 * NULL: the device and all that came from it belong to one thread. */
	void (*lock)(void *arg);
	void (*unlock)(void *arg);
	/* There is something for snt__soft_output(), because of a verb. Comes
	 * without the lock, at the end of the verb; several verbs may share one
	 * kick if nothing was output in between. Before a QP is destroyed it is the
	 * last chance to take what that QP has. */
	void (*kick)(void *arg);
	/* The same because something was posted. Comes with the lock, and gives it back: posting
	 * takes it once. NULL: kick. */
	void (*post)(void *arg);
	/* Somebody polls a CQ: a chance to move packets. Comes without the lock,
	 * before the CQ is looked at. NULL: none needed. */
	void (*progress)(void *arg);
	/* Somebody who polled wants an event instead: packets have to move without
	 * him. Comes without the lock. NULL: they do anyway. */
	void (*arm)(void *arg);
	/* A QP is being connected with an address. Returns how many bytes of payload one
	 * packet on the way there may have beyond what the MTU allows; see burst.h.
	 * Comes with the lock. NULL, or 0: none. */
	uint32_t (*reach)(void *arg, const uint8_t target[16]);
	/* A region is being deregistered: nothing will be sent from there any more. Comes
	 * with the lock. NULL: that makes no difference. */
	void (*forget)(void *arg, const void *bytes, size_t length);
	/* From which address packets to that one are to come, as the host's routes have
	 * it. Comes without the lock. Returns 0 or a negative errno. NULL: no routes. */
	int (*route)(void *arg, const struct sockaddr *target, uint8_t source_out[16]);
	/* Somebody wants to sleep until the fd, of a channel or of async events, is
	 * readable. Comes without the lock. Returns 0 to look again, or a negative
	 * errno, with which the verb fails. NULL: poll(2). */
	int (*wait)(void *arg, int fd);
};

/**
 * snt__soft_input - a packet has arrived
 * @path: from whom, and to which of our addresses
 * @bytes: from BTH to pad, ICRC checked and cut off; any alignment
 *
 * Whatever it contains is judged here; what does not belong to a QP is dropped and
 * counted.
 */
void snt__soft_input(struct snt__soft_device *device, const struct snt__soft_path *path,
		     const uint8_t *bytes, size_t length, uint64_t now);

/**
 * snt__soft_output - take packets to be sent, fairly over all QPs
 * @max: at most SNT__SOFT_OUTPUT_MAX
 *
 * Returns: how many of @packets were filled in; fewer than @max, unless there may be
 * more. 0: nothing left. Packets count as sent at @now.
 */
unsigned snt__soft_output(struct snt__soft_device *device,
			  struct snt__soft_packet *packets, unsigned max, uint64_t now);

/**
 * snt__soft_output_posted - the same without acknowledgments that can wait
 *
 * What was posted goes out by itself. Acknowledgments stay where they are: whoever calls this
 * sees to it that snt__soft_output() is called soon.
 */
unsigned snt__soft_output_posted(struct snt__soft_device *device,
				 struct snt__soft_packet *packets, unsigned max,
				 uint64_t now);

/**
 * snt__soft_deadline - when snt__soft_timer() is next to be called
 *
 * Returns: SNT__SOFT_NEVER if there is nothing to wait for.
 */
uint64_t snt__soft_deadline(struct snt__soft_device *device);

/**
 * snt__soft_timer - let everything happen whose time has come
 */
void snt__soft_timer(struct snt__soft_device *device, uint64_t now);

#endif
