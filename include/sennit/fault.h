/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_FAULT_H
#define SENNIT_FAULT_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>

/*
 * Faults on purpose: soft devices fail as a network card, a cable or a switch does, so that
 * programs can test what they do then. The device below loses everything from its third
 * packet on, whether packets go through sockets or through shared memory:
 *
 *	struct snt_fault_opts fault =
 *		SNT_INIT(fault, .kind = SNT_FAULT_CUT, .after_sent = 2);
 *
 *	check(snt_device_fail(device, &fault));
 *	start_transfer(qp);
 *	while (!lost_packets(device)) // snt_device_stats.lost_by_fault
 *		check(snt_cq_poll(cq, &wc, 1));
 *	check(snt_device_heal(device));
 *	finish_transfer(cq); // the QP's timeout brings back what was lost
 *
 * Everything that uses the device sees the fault: all contexts of the process that have
 * opened it, and the connection manager. TCP connections that conn.h makes beside it do
 * not go through the device.
 *
 * Thread: any, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_device;

enum snt_fault {
	/* Packets are lost in both directions. No event reports it: senders notice when
	 * their retries have run out. */
	SNT_FAULT_CUT = 0,
	SNT_FAULT_CUT_OUT, /* only packets that the device sends */
	SNT_FAULT_CUT_IN,  /* only packets that it receives */
	/* As SNT_FAULT_CUT; and the port is down, with SNT_EVENT_PORT_DOWN, until it is
	 * healed, with SNT_EVENT_PORT_ACTIVE. */
	SNT_FAULT_PORT_DOWN,
	/* The device is dead, with SNT_EVENT_DEVICE_FATAL. WRs are flushed, and whatever
	 * creates or changes an object fails with -EIO. It cannot be healed. */
	SNT_FAULT_DEVICE_FATAL,
};

struct snt_fault_opts {
	size_t size;
	enum snt_fault kind;
	/* The fault occurs when the device has sent so many packets from now on, so that
	 * a test has the same fault in each run; 0: at once. A packet through shared
	 * memory may be longer than the MTU, and counts as one. */
	uint64_t after_sent;
};

/**
 * snt_device_fail - make a soft device fail
 * @opts: NULL: SNT_FAULT_CUT, at once
 *
 * A device has one fault at a time: one that it has already, or that is still to occur,
 * is healed first. When a fault occurs at once, no packet is sent or received any more
 * after the call has returned; those that are in a ring of shared memory or in the
 * network still arrive at the peer.
 *
 * Returns: 0; -EOPNOTSUPP for devices that are not soft devices; -EINVAL for an unknown
 * kind; -EIO for a device that is dead.
 */
SNT_API int snt_device_fail(struct snt_device *device,
			    const struct snt_fault_opts *opts);

/**
 * snt_device_heal - end the fault of a soft device
 *
 * What was lost is sent again at the next timeout of each QP (snt_qp_opts.timeout) that
 * has retries left.
 *
 * Returns: 0, also without a fault; -EOPNOTSUPP for devices that are not soft devices;
 * -EIO for a device that is dead, which is open until all contexts of the process have
 * closed it.
 */
SNT_API int snt_device_heal(struct snt_device *device);

#ifdef __cplusplus
}
#endif

#endif
