/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_PROVIDER_H
#define SNT_DEV_PROVIDER_H

#include <sennit/device.h>
#include <sennit/fault.h>
#include <stdbool.h>

#include "util/setting.h"

/*
 * A provider is where a context finds devices by name. Adopted devices have none, since
 * they need not be found or opened.
 */

/* The most fds of a device that a thread sleeps on. */
#define SNT__RX_FDS 2

/* The devices found, from list() until unlist(). */
struct snt__listing {
	void *handle;
	unsigned count;
};

/* Of a QP, for snt_lane_info. */
struct snt__lane_stats {
	uint64_t resends;
	uint64_t timeouts;
	uint64_t duplicates;
	uint64_t out_of_order;
	uint64_t round_trip_ns;
	uint32_t window;
};

struct snt__provider {
	enum snt_device_kind kind;
	const struct snt_control *(*control)(void);
	/* No devices, or no RDMA support at all, is success with count 0. Only
	 * providers that create devices at addresses use `addresses`. */
	int (*list)(struct snt__value addresses, struct snt__listing *listing_out);
	void (*unlist)(struct snt__listing *listing);
	const char *(*name)(const struct snt__listing *listing, unsigned position);
	int (*open)(const struct snt__listing *listing, unsigned position,
		    struct ibv_context **context_out);
	int (*close)(struct ibv_context *context);
	/* What carries the packets of a QP; if NULL, the best that any QP can have.
	 * Without this function: the port. */
	enum snt_path (*path)(struct ibv_context *context, struct ibv_qp *qp);
	/* What was lost, of all QPs and of one. NULL: the device does not count it. */
	void (*device_stats)(struct ibv_context *context,
			     struct snt_device_stats *stats_out);
	void (*lane_stats)(struct ibv_context *context, struct ibv_qp *qp,
			   struct snt__lane_stats *stats_out);
	/* Makes the device fail, or ends that. Return 0, or -EIO: the device is dead.
	 * NULL: it does not fail on purpose. */
	int (*fail)(struct ibv_context *context, enum snt_fault kind,
		    uint64_t after_sent);
	int (*heal)(struct ibv_context *context);
	/* A thread is about to sleep until the device has something for it. Returns how
	 * many fds the thread has to watch as well: packets advance only if rx_return()
	 * reports which of them are readable, as a set of bits. A thread that got fds
	 * calls rx_return() soon after it woke up. 0: none, and no rx_return(). Without
	 * this function: the same.
	 *
	 * After this and rx_return() the caller takes the events of `channel`: packets
	 * that they move need not make its fd readable. NULL: none. */
	unsigned (*rx_borrow)(struct ibv_context *context, int fds[SNT__RX_FDS],
			      struct ibv_comp_channel *channel);
	/* The same for a thread that will sleep in an event loop of the program, and may
	 * compute before: if it does not come for its packets, the device takes them. It
	 * watches the fds, which are the same each time, for edges. `readable`: the edges
	 * it has taken, and not reported by rx_return(). Packets that are moved here make
	 * the fds of channels readable. */
	unsigned (*rx_watch)(struct ibv_context *context, int fds[SNT__RX_FDS],
			     unsigned readable);
	void (*rx_return)(struct ibv_context *context, unsigned readable,
			  struct ibv_comp_channel *channel);
	/* As snt_control.get_cq_event, for a channel that is known not to block. NULL:
	 * that one. */
	int (*take_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			     void **cq_context_out);
};

extern const struct snt__provider snt__provider_verbs;
extern const struct snt__provider snt__provider_soft;

#endif
