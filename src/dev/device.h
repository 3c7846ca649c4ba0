/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_DEVICE_H
#define SNT_DEV_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sennit/device.h>

#include "dev/provider.h"
#include "dev/select.h"
#include "util/setting.h"

struct snt_ctx;

/* What can change while the device is open. Other threads may read it at any time, so
 * it is replaced as a whole, and replaced ones are kept until the device is closed. */
struct snt__port {
	struct snt__port *before; /* the one that it has replaced */
	struct snt_device_info info;
	struct snt_gid_info *gid; /* info.gid_count of them */
	uint32_t cap_flags;	  /* as verbs have them; 0 without a control table */
	int gid_best;		  /* position in gid, -1: none */
	int gid_error;		  /* why a slot could not be read; 0: all could */
	char gid_reason[192];
};

struct snt_device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	/* A copy, so that members that the table is too short for are NULL. */
	struct snt_control control;
	bool has_control;
	const struct snt__provider *provider; /* NULL: adopted, to be closed by the
					       * program */
	struct snt__value gid_wish;	      /* "auto" or a table index */
	unsigned index;
	char name[SNT__DEVICE_NAME];
	uint8_t number; /* of the port */
	_Atomic(struct snt__port *) port;
};

static inline const struct snt__port *snt__port(const struct snt_device *device)
{
	return atomic_load_explicit(&device->port, memory_order_acquire);
}

/* The number of ports of the device that the provider lists at `position`. */
int snt__device_count_ports(const struct snt__provider *provider,
			    const struct snt__listing *listing, unsigned position,
			    unsigned *count_out);

/* Opens one of its ports. -ENETDOWN: the port is not active. -EADDRNOTAVAIL: it has no
 * usable GID. */
int snt__device_open(const struct snt__provider *provider,
		     const struct snt__listing *listing, unsigned position,
		     uint8_t number, struct snt__value gid_wish,
		     struct snt_device **device_out);

struct snt_adopted;
int snt__device_adopt(const struct snt_adopted *adopted, struct snt__value gid_wish,
		      struct snt_device **device_out);

/*
 * Closing takes two steps, so that a device which is still in use stays intact:
 * snt__device_release releases the PD and can be repeated if it fails;
 * snt__device_close then closes what the library opened and frees, which never fails.
 */
int snt__device_release(struct snt_device *device);
void snt__device_close(struct snt_device *device);

/* A completion channel that does not block. */
int snt__device_make_channel(const struct snt_device *device,
			     struct ibv_comp_channel **channel_out);

/* Before a thread sleeps, and when it wakes up: see snt__provider. */
unsigned snt__device_rx_borrow(const struct snt_device *device, int fds[SNT__RX_FDS],
			       struct ibv_comp_channel *channel);
unsigned snt__device_rx_watch(const struct snt_device *device, int fds[SNT__RX_FDS],
			      unsigned readable);
void snt__device_rx_return(const struct snt_device *device, unsigned readable,
			   struct ibv_comp_channel *channel);

/* An event of a channel that does not block. 0; -EAGAIN: there is none; or the errno of the
 * device. */
int snt__device_take_cq_event(const struct snt_device *device,
			      struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			      void **cq_context_out);

/* What carries the packets of one of its QPs; if NULL, the best that any QP can
 * have. */
enum snt_path snt__device_path(const struct snt_device *device, struct ibv_qp *qp);

/* What one of its QPs has lost; zeros if the device does not count it. */
void snt__device_lane_stats(const struct snt_device *device, struct ibv_qp *qp,
			    struct snt__lane_stats *stats_out);

/* "mlx5_0 port 1", for messages. */
#define SNT__DEVICE_TEXT (SNT__DEVICE_NAME + 16)
const char *snt__device_text(const struct snt_device *device, char *buffer);

#endif
