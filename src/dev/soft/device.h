/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_DEVICE_H
#define SNT_DEV_SOFT_DEVICE_H

#include <stdbool.h>
#include <infiniband/verbs.h>
#include <sennit/control.h>
#include "dev/soft/driver.h"
#include "dev/soft/seat.h"

/*
 * Soft devices: created by a driver, used through verbs.
 *
 * A device has one port. Inline verbs see its ibv_context as a genuine one; everything
 * else goes through snt__soft_control().
 */

/* Entries of the GID table; empty ones are all zero. */
#define SNT__SOFT_GID_MAX 16

/* The largest message of RC, as InfiniBand has it. */
#define SNT__SOFT_MESSAGE_MAX (UINT32_C(1) << 31)

/* The size of a MAD, the only kind of message that QP 1 receives. */
#define SNT__SOFT_MAD_SIZE 256

/* Zero means the default that is given; limits are enforced and reported. */
struct snt__soft_config {
	const char *name; /* as ibv_device::name; copied */
	const struct snt__soft_driver *driver;
	void *driver_arg;
	const uint8_t (*gids)[16]; /* copied; an IPv4 address is a mapped one */
	unsigned gid_count;
	uint32_t netdev;  /* the interface that has these addresses; 0: none */
	enum ibv_mtu mtu; /* the MTU of the wire: IBV_MTU_4096 */
	bool port_down;	  /* until snt__soft_device_set_port() */

	/* Limits on data in flight, so that sockets need not drop it. A request window
	 * is what one QP sends without an acknowledgment, in bytes of full packets. A
	 * response window is what READs of all QPs together may have asked for; it
	 * determines the chunks of READs. A QP may always have one chunk in flight. */
	uint32_t request_window;  /* 512 KiB */
	uint32_t far_window;	  /* the same on long paths; twice that */
	uint32_t response_window; /* 256 KiB */
	/* How many bytes, with headers, the wire best takes at once; 0: any. A sender
	 * that waits for a window to open waits until that many fit. */
	uint32_t run_bytes;
	/* The least time before an acknowledgment counts as lost, whatever a QP's
	 * timeout is. */
	uint64_t ack_timeout_min; /* 0 ns */
	/* As rxe: one NAK, however often the peer begins again. For tests. */
	bool nak_once;
	/* For drivers whose addresses are shared by processes. */
	struct snt__seat seat;

	unsigned qp_max;     /* 1024; at most 65536 */
	unsigned qp_wr_max;  /* 16384 */
	unsigned inline_max; /* 512; at most 4096 */
	unsigned cq_max;     /* 1024 */
	unsigned cqe_max;    /* 1 << 20 */
	unsigned mr_max;     /* 4096; at most 1 << 20 */
	unsigned srq_max;    /* 256 */
	unsigned srq_wr_max; /* 16384 */
	unsigned read_max;   /* 16 READs and atomics of a QP, in and out; at most 128 */
};

/**
 * snt__soft_device_create - make a device
 *
 * Returns: 0; -EINVAL for numbers out of range; -ENOMEM; the errno of eventfd(2).
 */
int snt__soft_device_create(const struct snt__soft_config *config,
			    struct snt__soft_device **device_out);

/**
 * snt__soft_device_destroy - free a device
 *
 * The driver has stopped calling it. NULL does nothing.
 *
 * Returns: 0; -EBUSY, with no effect, while an object that was created by verbs exists.
 */
int snt__soft_device_destroy(struct snt__soft_device *device);

/* The first context, valid as long as the device. The control table's verbs find the
 * device from any of its contexts. */
struct ibv_context *snt__soft_device_context(struct snt__soft_device *device);

/**
 * snt__soft_context_open - open a device for one more part of a program
 * @name: the name of the device in this context
 *
 * The first caller gets the first context. Returns: 0; -ENOMEM; the errno of
 * eventfd(2).
 */
int snt__soft_context_open(struct snt__soft_device *device, const char *name,
			   struct ibv_context **context_out);

/* Returns: 0; -EBUSY, with no effect, while an object of the context exists. */
int snt__soft_context_close(struct ibv_context *context);

struct snt__soft_device *snt__soft_device_of(struct ibv_context *context);
const struct snt_control *snt__soft_control(void);

/*
 * Changes of a device from below. With the lock held.
 */

/* The port goes up or down, with the event. Packets are neither sent nor received over
 * a port that is down; QPs do not notice otherwise. */
void snt__soft_device_set_port(struct snt__soft_device *device, bool up);

/* An entry of the GID table changes, with the event. @gid NULL: it becomes empty. QPs
 * keep the addresses that they were connected with. */
void snt__soft_device_set_gid(struct snt__soft_device *device, unsigned index,
			      const uint8_t gid[16]);

/* The end, with IBV_EVENT_DEVICE_FATAL. All QPs go to ERR, nothing is sent or received
 * any more, and of the control table only destruction, queries, channels and events
 * work; the rest returns -EIO. */
void snt__soft_device_kill(struct snt__soft_device *device);

/*
 * QP 1, whose messages are all MADs; its agent is the connection manager. The device
 * calls all of these with the lock held.
 */
struct snt__soft_agent {
	/* A MAD has arrived. @path is the sender's, as given to snt__soft_input(). The
	 * bytes are valid during the call only. */
	void (*input)(void *arg, const struct snt__soft_path *path,
		      const uint8_t mad[SNT__SOFT_MAD_SIZE], uint64_t now);
	/* The next MAD to send, from one of our addresses to QP 1 of another device; a
	 * source port of 0 is chosen here. False: there is none for now. A call from
	 * elsewhere that adds one must kick the driver. */
	bool (*output)(void *arg, struct snt__soft_path *path_out,
		       uint8_t mad_out[SNT__SOFT_MAD_SIZE], uint64_t now);
	/* As the driver's. */
	uint64_t (*deadline)(void *arg);
	void (*timer)(void *arg, uint64_t now);
	/* The device has been killed. NULL: the agent need not know. */
	void (*killed)(void *arg);
};

/* With the lock held. NULL: none; MADs are dropped. */
void snt__soft_device_set_agent(struct snt__soft_device *device,
				const struct snt__soft_agent *agent, void *arg);

/*
 * Datagrams. The control table has no address handles, since the layers above do not
 * need them; tests and the shim do.
 */
int snt__soft_create_ah(struct ibv_pd *pd, const struct ibv_ah_attr *attr,
			struct ibv_ah **ah_out);
int snt__soft_destroy_ah(struct ibv_ah *ah);

/* Counters since the creation. */
struct snt__soft_stats {
	uint64_t packets_in;
	uint64_t packets_out;
	uint64_t dropped;      /* malformed, of no QP, or not from its peer */
	uint64_t ghosts;       /* responses that are no longer waited for */
	uint64_t duplicates;   /* requests that were received again */
	uint64_t out_of_order; /* requests that arrived too early */
	uint64_t resent;       /* request packets sent more than once, probes aside */
	uint64_t rewinds;      /* after NAKs, also implied ones, and timeouts */
	uint64_t timeouts;     /* of verbs, each of which is a retry */
	uint64_t probes;       /* after a silence, of two packets at most */
	uint64_t probe_packets;
	uint64_t naks_out; /* other than RNR */
	uint64_t rnr_out;
	uint64_t rnr_in;
	uint64_t cq_overruns;
	uint64_t lost_by_fault; /* packets, in both directions: fault.h */
};

const struct snt__soft_stats *snt__soft_device_stats(
	const struct snt__soft_device *device);

#endif
