/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CTX_H
#define SENNIT_CTX_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/device.h>

/*
 * A program creates one context. It holds the devices, the memory registered on them, and
 * the clock, random source and log of everything made from it. All threads of the
 * program share it. Each thread that sends or receives has a loop of its own (loop.h),
 * or polls a CQ without one; docs/use/threads.md has the rules.
 *
 * Which devices
 * -------------
 * A list of at most SNT_DEVICE_LIST_MAX entries, separated by commas, from
 * `snt_ctx_opts::devices` or the environment variable SENNIT_DEVICES. Spaces around an
 * entry are ignored; inside an entry they are an error. No list means every device with
 * an active port.
 *
 *	mlx5		all devices whose name begins with mlx5
 *	=mlx5_1		the device with exactly this name
 *	^mlx5_1		not the devices whose name begins so
 *	^=mlx5_1	not the device with exactly this name
 *	mlx5_1:2	of these, port 2 only; without a port, all active ports
 *
 * A mark (=, ^, ^=) applies to its entry and to the unmarked entries after it, so
 * "^mlx5_0,mlx5_3" excludes both. Exclusion always wins, at any position. A list of
 * nothing but exclusions starts from all devices.
 *
 * An entry that matches nothing usable is an error: no such device, no such port, or no
 * active port among those it matches. An entry that is exact or names a port is also an
 * error if one of its ports is not active. Two entries that select the same port are an
 * error. An exclusion that matches nothing is only a warning, so that one list serves
 * many hosts.
 *
 * Order
 * -----
 * Devices are numbered from 0: adopted devices, as given; then those that libibverbs
 * lists, in its order; then soft devices, in the order of their addresses in the list.
 * Ports of a device follow each other by number. The order of entries in the list of
 * devices does not matter. Lanes are distributed over devices in this order
 * (snt_qp_opts.lanes), which also determines how the lanes of two peers are paired.
 *
 * Soft devices
 * ------------
 * SENNIT_SOFT or `snt_ctx_opts::soft` selects them. "auto": if this host has no RDMA
 * device at all, two soft devices, with a warning in the log, or those on the addresses
 * given, without a warning; a device that exists but is broken or not selected is an
 * error and never silently replaced. "never": none. "only": soft devices even if the
 * host has others.
 *
 * A soft device speaks RoCEv2 on a UDP socket of one address, port 4791, and is
 * called soft0, soft1, ... SENNIT_SOFT_ADDRESSES or `snt_ctx_opts::soft_addresses`
 * lists the addresses: IP addresses and network interfaces, separated by commas.
 * Without a list there are two devices, on the first pair of loopback addresses
 * (127.0.0.1 and .2, .3 and .4, ...) whose port is free, so that each context of each
 * process on a host has a pair of its own, which no other host can reach. Processes of
 * one user may name the same address: they share it, up to 63 of them, like programs that
 * share a NIC. A port of a listener is one process's only.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_ctx;

/* Maximum number of entries in a list of devices. */
#define SNT_DEVICE_LIST_MAX 64

enum snt_log_level {
	SNT_LOG_DEFAULT = 0, /* as SENNIT_LOG says, else SNT_LOG_WARN */
	SNT_LOG_ERROR,
	SNT_LOG_WARN,
	SNT_LOG_INFO,
	SNT_LOG_DEBUG,
};

/* Receives one line without a newline, which is valid during the call only. Runs inside
 * the sennit call that logs. Several threads may call it at the same time. */
typedef void (*snt_log_fn)(void *arg, enum snt_log_level level, const char *text);

/* Returns nanoseconds, monotonic. Several threads may call it at the same time. */
typedef uint64_t (*snt_clock_fn)(void *arg);

/* Fills the buffer and returns 0, or a negative errno. Several threads may call it at the
 * same time. */
typedef int (*snt_random_fn)(void *arg, void *buffer, size_t length);

enum snt_soft {
	SNT_SOFT_DEFAULT = 0, /* as SENNIT_SOFT says, else SNT_SOFT_AUTO */
	SNT_SOFT_AUTO,
	SNT_SOFT_NEVER,
	SNT_SOFT_ONLY,
};

/* A device that the program opened or implements itself. All of it stays the program's
 * and must outlive the context. control.h lists the members of the control table that
 * each feature needs. */
struct snt_adopted {
	size_t size;
	const char *name;	     /* for messages; must be unique in the context */
	struct ibv_context *context; /* its ops are called through inline verbs */
	struct ibv_pd *pd;
	const struct snt_control *control; /* NULL: only inline verbs are called */
	uint8_t port;			   /* 0 means 1 */
};

struct snt_ctx_opts {
	size_t size;
	const char *devices; /* NULL: SENNIT_DEVICES, else all */
	enum snt_soft soft;
	const char *gid; /* NULL: SENNIT_GID, else "auto"; or a table index "3" */
	/* Adopted devices come first in the context; with any, other devices are added
	 * only if `devices` is set in code, or `soft` to something other than
	 * SNT_SOFT_NEVER. All elements have the same `size`. */
	const struct snt_adopted *adopted;
	size_t adopted_count;
	enum snt_log_level log_level;
	/* NULL: silence, unless SENNIT_LOG is set, which means stderr. */
	snt_log_fn log;
	void *log_arg;
	snt_clock_fn clock; /* NULL: CLOCK_MONOTONIC */
	void *clock_arg;
	snt_random_fn random; /* NULL: getrandom(2) */
	void *random_arg;
	const char *soft_addresses; /* NULL: SENNIT_SOFT_ADDRESSES, else loopback */
};

/**
 * snt_ctx_create - create a context: open its devices
 * @opts: NULL for all defaults
 *
 * Thread: any; all threads may use the result.
 * Returns: 0, or, with nothing left open,
 *   -EINVAL    a malformed device list, setting or option
 *   -E2BIG     options from a newer header that this library does not know;
 *              more than SNT_DEVICES_MAX devices
 *   -ENODEV    an entry matches nothing; all devices are excluded; no device at all;
 *              the kernel has devices that libibverbs cannot use
 *   -ENETDOWN  the selected devices have no active port
 *   -EEXIST    a device is selected twice, adopted twice, or both
 *   -EADDRNOTAVAIL  a port has no usable GID, or not the requested one; a soft device's
 *              address is not an address of this host
 *   -EADDRINUSE  the port of a soft device's address is in use by the kernel's rxe,
 *              another user, another program, or this one with another SENNIT_SOFT_SHM
 *   -EUSERS    63 processes share a soft device's address
 *   -ETIMEDOUT the processes that have a soft device's address do not answer
 *   -ETOOMANYREFS  a soft device's address cannot be shared for lack of file descriptors
 *   -EPROTONOSUPPORT  a soft device's address is shared by another version of sennit
 *   -EAGAIN    a soft device needs a thread, but RLIMIT_NPROC or the cgroup's pids.max
 *              allows no more
 *   -EOPNOTSUPP  an adopted device's control table cannot be queried; a device that is
 *              named is an iWARP one
 *   -ENOMEM, or the errno of the device's own call.
 */
SNT_API int snt_ctx_create(const struct snt_ctx_opts *opts, struct snt_ctx **ctx_out);

/**
 * snt_ctx_destroy - close the devices of a context, and free it
 *
 * NULL is legal and does nothing.
 *
 * Thread: any, while no other thread is in a call that names the context or an object
 * made from it. Objects that other threads still hold make this call fail with -EBUSY.
 * Returns: 0; -EBUSY while a loop, a CQ, memory or any other object made from it
 * exists, in any thread, including plain verbs objects and memory that is being
 * registered; or the errno of a device that refused. After a failure everything is
 * still open, and the call can be repeated.
 */
SNT_API int snt_ctx_destroy(struct snt_ctx *ctx);

/**
 * snt_ctx_device_count - get the number of devices in the context
 *
 * Thread: any.
 */
SNT_API unsigned snt_ctx_device_count(const struct snt_ctx *ctx);

/**
 * snt_ctx_device - get a device by its index
 *
 * Ownership: the context's.
 * Thread: any.
 * Returns: NULL if there is no such index.
 */
SNT_API struct snt_device *snt_ctx_device(const struct snt_ctx *ctx, unsigned index);

#ifdef __cplusplus
}
#endif

#endif
