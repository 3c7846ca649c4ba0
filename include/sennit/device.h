/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_DEVICE_H
#define SENNIT_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/control.h>

/*
 * A device is one RDMA device together with one of its ports, opened by a context
 * (ctx.h) and closed with it. A context numbers its devices from 0 without gaps; lanes,
 * memory keys and errors refer to that index.
 *
 * Thread: any, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_device;

enum snt_device_kind {
	SNT_DEVICE_VERBS = 1, /* opened through libibverbs: hardware or rxe */
	SNT_DEVICE_SOFT,      /* sennit's own RoCEv2 endpoint */
	SNT_DEVICE_ADOPTED,   /* provided by the program (snt_adopted) */
};

enum snt_link {
	SNT_LINK_UNKNOWN = 0,
	SNT_LINK_INFINIBAND,
	SNT_LINK_ETHERNET,
};

/* Numbered as verbs number them. */
enum snt_port_state {
	SNT_PORT_UNKNOWN = 0,
	SNT_PORT_DOWN = 1,
	SNT_PORT_INIT = 2,
	SNT_PORT_ARMED = 3,
	SNT_PORT_ACTIVE = 4,
};

enum snt_gid_type {
	SNT_GID_IB = 0,
	SNT_GID_ROCE_V1 = 1,
	SNT_GID_ROCE_V2 = 2,
};

/* What carries packets. */
enum snt_path {
	SNT_PATH_UNKNOWN = 0, /* an adopted device, or a lane without a peer */
	SNT_PATH_PORT,	      /* the port of an RDMA device: hardware or rxe */
	SNT_PATH_UDP,	      /* the UDP socket of a soft device */
	SNT_PATH_SHM, /* memory shared by two soft devices of one user on one host */
};

/* The first word of every limit names what is limited; 0 means unknown. */
struct snt_device_info {
	size_t size;
	const char *name; /* "mlx5_0"; lives as long as the context */
	unsigned index;	  /* in the context */
	uint8_t port;	  /* from 1 */
	enum snt_device_kind kind;

	enum snt_link link;
	enum snt_port_state state;
	uint32_t mtu;	  /* active path MTU in bytes */
	uint32_t mtu_max; /* maximum of the port */
	/* Lanes times signalling rate, 10^6 bit/s; 0: unknown. A soft device has no
	 * speed of its own: it is as fast as the processors and the network below. */
	uint32_t speed_mbps;
	int32_t numa_node;	/* -1: none or unknown */
	uint16_t lid;		/* InfiniBand only */
	uint32_t gid_count;	/* table entries that hold a GID */
	int32_t gid_index;	/* table index of the chosen GID; -1: none */
	const char *gid_reason; /* why it was chosen, human-readable */

	uint64_t message_size_max;
	uint32_t qp_max;
	uint32_t qp_depth_max;
	uint32_t qp_sge_max;
	uint32_t cq_max;
	uint32_t cq_depth_max;
	uint32_t mr_max;
	uint64_t mr_size_max;
	uint32_t read_in_max;  /* READs and atomics one QP can answer at once */
	uint32_t read_out_max; /* READs and atomics one QP can have in flight */
	uint32_t srq_max;
	uint32_t srq_depth_max;
	uint32_t pkey_count;	    /* entries in the port's table of P_Keys */
	uint32_t comp_vector_count; /* for snt_cq_opts.comp_vector */
	int32_t atomics;	    /* non-zero: the device performs them */
	/* SNT_PATH_SHM: a soft device that uses shared memory with soft devices of the
	 * same user on this host, and UDP with all others; snt_lane_info has the path
	 * of a lane. */
	enum snt_path path;
};

struct snt_gid_info {
	size_t size;
	uint32_t index; /* in the port's GID table */
	enum snt_gid_type type;
	uint8_t raw[16];
	uint32_t netdev; /* interface index; 0: none or unknown */
	int32_t score;	 /* higher is better */
	char text[48];	 /* as an address: "10.0.0.1", "fe80::1" */
	char reason[96]; /* how the score is made up, human-readable */
};

/* Of all QPs of a device, since it was opened by the first context of the process. */
struct snt_device_stats {
	size_t size;
	uint64_t packets_in;
	uint64_t packets_out;
	uint64_t resends;    /* packets that were sent again */
	uint64_t timeouts;   /* a peer was silent for longer than it usually is */
	uint64_t duplicates; /* requests that came again */
	uint64_t
		out_of_order; /* requests that came too early, so that one is missing */
	uint64_t drops;	      /* packets that the socket had no room for */
	/* Of the socket, in bytes. If less than wanted, the kernel did not grant more,
	 * and drops are likely: set the sysctl net.core.rmem_max to what is wanted. */
	uint32_t receive_buffer;
	uint32_t receive_buffer_wanted;
	uint64_t lost_by_fault; /* packets that snt_device_fail() has lost */
	uint64_t
		probes; /* of the resends: sent to ask a silent peer what it has received */
};

/**
 * snt_device_query - get properties and limits of a device
 *
 * The port's state, MTU and GIDs are those seen when the context was opened or
 * at the last snt_device_refresh().
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_device_query(const struct snt_device *device,
			     struct snt_device_info *info_out);

/**
 * snt_device_query_gid - get one entry of the port's GID table
 * @position: 0 to gid_count - 1; empty table slots are left out
 *
 * Returns: 0; -ENOENT past the last one; -EINVAL as for snt_device_query().
 */
SNT_API int snt_device_query_gid(const struct snt_device *device, uint32_t position,
				 struct snt_gid_info *info_out);

/**
 * snt_device_query_stats - get what a soft device has lost and sent again
 *
 * snt_qp_query_lane() has the same of a single lane.
 *
 * Returns: 0; -EOPNOTSUPP for devices that are not soft devices; -EINVAL as for
 * snt_device_query().
 */
SNT_API int snt_device_query_stats(const struct snt_device *device,
				   struct snt_device_stats *stats_out);

/**
 * snt_device_refresh - query the device's port and GIDs again
 *
 * GID tables change while programs run (DHCP, bonds, containers). Connected QPs keep
 * the address with which they were connected.
 *
 * Returns: 0; the device's errno, with the previous values unchanged; -EOPNOTSUPP for
 * an adopted device without a control table.
 */
SNT_API int snt_device_refresh(struct snt_device *device);

/**
 * snt_device_context, snt_device_pd, snt_device_control - get the verbs objects below
 *
 * For programs that mix plain verbs with sennit. Objects made with them must
 * be destroyed, through the same table, before the context is closed.
 *
 * Ownership: the context's.
 * Returns: never NULL, except snt_device_control() for an adopted device that
 * came without a table.
 */
SNT_API struct ibv_context *snt_device_context(const struct snt_device *device);
SNT_API struct ibv_pd *snt_device_pd(const struct snt_device *device);
SNT_API const struct snt_control *snt_device_control(const struct snt_device *device);

#ifdef __cplusplus
}
#endif

#endif
