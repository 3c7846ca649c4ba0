/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_DRIVER_H
#define SNT_DEV_SOFT_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "dev/soft/wire.h"

/*
 * The interface between a soft device and the driver that carries its packets.
 *
 * The device is a transport without I/O: it has no clock, socket, thread, randomness or
 * lock of its own, and allocates only when something is created or registered. A driver
 * feeds it packets and time, and takes packets out:
 *
 *	snt__soft_input()     a packet has arrived
 *	snt__soft_output()    packets to send, until it returns 0
 *	snt__soft_deadline()  when to call snt__soft_timer()
 *	snt__soft_timer()     time has passed
 *
 * These four are called with the device's lock held, if it has one. Input and timer may
 * leave packets to output. After output has returned 0, it has no packets until the
 * next input, timer or kick. The same calls in the same order have the same results,
 * byte by byte.
 *
 * Time is in nanoseconds, with any origin, and never goes back.
 */

struct snt__soft_device;

/* The most SGEs of a WR, and so the most pieces of a packet's payload. */
#define SNT__SOFT_SGE_MAX 32

/* The most packets of one output. */
#define SNT__SOFT_OUTPUT_MAX 128

/* No deadline. */
#define SNT__SOFT_NEVER UINT64_MAX

/* Source and destination of a packet. Addresses are as in a GID: an IPv4 one is mapped
 * (::ffff:a.b.c.d). The target's port is SNT__WIRE_PORT. */
struct snt__soft_path {
	uint8_t source[16];
	uint8_t target[16];
	uint32_t flow_label;
	uint16_t source_port;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

/*
 * A packet to send. The driver adds IP, UDP, pad and ICRC, and derives the pad from the
 * payload's length (snt__wire_pad, snt__icrc_seal).
 *
 * The memory that it points to stays valid, and may be read, until the next call into
 * the device, or into verbs on it; only output may be called once more in between, for
 * the packets that follow. Consecutive packets with the same `path` pointer, header
 * length and payload length are a run that segmentation offload can send as one; the
 * middle packets of a message come as long runs.
 */
struct snt__soft_packet {
	const struct snt__soft_path *path;
	uint32_t payload_length;
	uint8_t payload_count;
	uint8_t header_length;
	uint8_t header[SNT__WIRE_HEADER_MAX];
	struct iovec payload[SNT__SOFT_SGE_MAX];
};

/* What a driver provides. All take the argument that came with it. */
struct snt__soft_driver {
	/* Fills the buffer: for QP numbers, keys and UDP source ports. */
	void (*random)(void *arg, void *buffer, size_t length);
	/* Around every verb, and held by drivers around the four functions. NULL: the
	 * device and all its objects belong to one thread. */
	void (*lock)(void *arg);
	void (*unlock)(void *arg);
	/* A verb has left something for snt__soft_output(). Called without the lock, at
	 * the end of the verb; several verbs may share one kick if there was no output
	 * in between. Before a QP is destroyed it is the last chance to take that QP's
	 * packets. */
	void (*kick)(void *arg);
	/* The same after posting. Called with the lock, and releases it: posting takes
	 * the lock once. NULL: kick. */
	void (*post)(void *arg);
	/* A thread polls a CQ: a chance to move packets. Called without the lock,
	 * before the CQ is read. NULL: not needed. */
	void (*progress)(void *arg);
	/* A thread that polled wants an event instead: packets must move without it.
	 * Called without the lock. NULL: they always do. */
	void (*arm)(void *arg);
	/* A QP is being connected with one of an address. Returns how many bytes of
	 * payload one packet to it may have beyond what the MTU allows; see burst.h.
	 * Called with the lock. NULL, or 0: none. */
	uint32_t (*reach)(void *arg, const uint8_t target[16], uint32_t qpn);
	/* A region is being deregistered: nothing more will be sent from there. Called
	 * with the lock. NULL: not needed. */
	void (*forget)(void *arg, const void *bytes, size_t length);
	/* The source address for packets to a target, by the host's routes. Called
	 * without the lock. Returns 0 or a negative errno. NULL: no routes. */
	int (*route)(void *arg, const struct sockaddr *target, uint8_t source_out[16]);
	/* Reserves a port of the connection manager among the processes that share the
	 * address, again with no effect, or gives it back; port 0: all of them. With the
	 * lock. Returns 0, -EADDRINUSE, or another negative errno. NULL: no process
	 * shares it. */
	int (*claim)(void *arg, uint16_t port);
	void (*unclaim)(void *arg, uint16_t port);
	/* A thread is to sleep until the fd, of a channel or of async events, is
	 * readable. Called without the lock. Returns 0 to look again, or a negative
	 * errno, with which the verb fails. NULL: poll(2). */
	int (*wait)(void *arg, int fd);
};

/**
 * snt__soft_input - a packet has arrived
 * @path: the sender, and the address of ours that it was sent to
 * @bytes: from BTH to pad, ICRC checked and cut off; any alignment
 *
 * All contents are checked here; a packet that belongs to no QP is dropped and counted.
 */
void snt__soft_input(struct snt__soft_device *device, const struct snt__soft_path *path,
		     const uint8_t *bytes, size_t length, uint64_t now);

/**
 * snt__soft_output - take packets to send, fairly over all QPs
 * @max: at most SNT__SOFT_OUTPUT_MAX
 *
 * Returns: how many of @packets were filled in; fewer than @max only if there are no
 * more for now. 0: nothing left. Packets count as sent at @now.
 */
unsigned snt__soft_output(struct snt__soft_device *device,
			  struct snt__soft_packet *packets, unsigned max, uint64_t now);

/**
 * snt__soft_output_posted - the same without acknowledgments that can wait
 *
 * Posted WRs are sent. Deferred acknowledgments stay queued: the caller makes sure that
 * snt__soft_output() is called soon.
 */
unsigned snt__soft_output_posted(struct snt__soft_device *device,
				 struct snt__soft_packet *packets, unsigned max,
				 uint64_t now);

/**
 * snt__soft_deadline - when to call snt__soft_timer() next
 *
 * Returns: SNT__SOFT_NEVER if no timer is running.
 */
uint64_t snt__soft_deadline(struct snt__soft_device *device);

/**
 * snt__soft_timer - run everything that is due
 */
void snt__soft_timer(struct snt__soft_device *device, uint64_t now);

#endif
