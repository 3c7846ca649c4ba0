/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CTX_H
#define SENNIT_CTX_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/device.h>

/*
 * A context is what a program opens once: its devices, the memory registered
 * on them, and the clock, randomness and log that everything made from it
 * uses. All threads of the program share it. Each thread that sends or receives
 * has a loop of its own (loop.h), or polls a CQ without one; docs/threads.md
 * has the rules.
 *
 * Which devices
 * -------------
 * A list of at most SNT_DEVICE_LIST_MAX entries, separated by commas, from
 * `snt_ctx_opts::devices` or the environment variable SENNIT_DEVICES. Spaces
 * around an entry are ignored; inside of one they are an error. No list means
 * every device with an active port.
 *
 *	mlx5		all devices whose name begins with mlx5
 *	=mlx5_1		the device with exactly this name
 *	^mlx5_1		not the devices whose name begins so
 *	^=mlx5_1	not the device with exactly this name
 *	mlx5_1:2	of these, port 2 only; without a port, all active ports
 *
 * A mark (=, ^, ^=) holds for its entry and for the unmarked entries after it,
 * so "^mlx5_0,mlx5_3" excludes both. Exclusion always wins, wherever it
 * stands. A list of exclusions only starts from all devices.
 *
 * An entry that names something which is not there is an error: no such
 * device, no such port, or no active port among what it matches. An entry
 * which is exact or names a port is an error also if just one of its ports is
 * not active. Two entries that select the same port are an error. An exclusion
 * that matches nothing is only a warning, so that one list serves many hosts.
 *
 * Order
 * -----
 * Devices are numbered from 0: those that were adopted, as given; then those
 * that libibverbs lists, in its order; then soft devices, in the order of their
 * addresses in the list. Ports of a device follow each other by number. The order of
 * entries in the list of devices does not matter. Lanes are dealt in this order
 * (snt_qp_opts.lanes), and those of two peers are paired by it.
 *
 * Soft devices
 * ------------
 * SENNIT_SOFT or `snt_ctx_opts::soft`. "auto": two of them, or those on
 * the addresses that were named, if this host has no RDMA device at all, with a
 * warning in the log unless addresses were named; a device that is there but broken or
 * not selected is an error and never silently replaced. "never". "only": soft
 * devices even where there are others.
 *
 * A soft device speaks RoCEv2 on a UDP socket of one address, port 4791, and is
 * called soft0, soft1, ... Which addresses is for SENNIT_SOFT_ADDRESSES or
 * `snt_ctx_opts::soft_addresses` to say: IP addresses and network interfaces,
 * separated by commas. Without a list there are two, on the first pair of
 * loopback addresses (127.0.0.1 and .2, .3 and .4, ...) whose port nobody has,
 * so that each context of each process on a host has a pair of its own, and
 * nobody outside the host can reach it.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_ctx;

/* The most entries of a list of devices. */
#define SNT_DEVICE_LIST_MAX 64

enum snt_log_level {
	SNT_LOG_DEFAULT = 0, /* as SENNIT_LOG says, else SNT_LOG_WARN */
	SNT_LOG_ERROR,
	SNT_LOG_WARN,
	SNT_LOG_INFO,
	SNT_LOG_DEBUG,
};

/* Receives one line without a newline, which is valid during the call only.
 * Runs inside the sennit call that has something to say. Several threads may call it
 * at the same time. */
typedef void (*snt_log_fn)(void *arg, enum snt_log_level level, const char *text);

/* Returns nanoseconds that never go back. Several threads may call it at the same time. */
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

/* A device that the program opened by itself, or made up. Ownership of all of
 * it stays with the program, and it must outlive the context. control.h tells which
 * members its control table needs for what. */
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
	/* Given adopted devices, the context holds them first; others join them
	 * only if `devices` is set in code, or `soft` to something other than
	 * SNT_SOFT_NEVER. All elements state the same size. */
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
 * snt_ctx_open - open devices and what belongs to them
 * @opts: NULL for all defaults
 *
 * Thread: any; all threads may use the result.
 * Returns: 0, or, with nothing left open,
 *   -EINVAL    a malformed device list, setting or option
 *   -E2BIG     options from a newer header that this library does not know;
 *              more than SNT_DEVICES_MAX devices
 *   -ENODEV    an entry matches nothing; all is excluded; no device at all; the
 *              kernel has devices that libibverbs cannot use
 *   -ENETDOWN  what was selected has no active port
 *   -EEXIST    a device is selected twice, adopted twice, or both
 *   -EADDRNOTAVAIL  a port has no usable GID, or not the one asked for; a soft
 *              device's address is not one of this host
 *   -EADDRINUSE  the port of a soft device's address is taken: by the kernel's rxe,
 *              another program or another context
 *   -EAGAIN    a soft device needs a thread, and the process or its user has as many
 *              as RLIMIT_NPROC or the cgroup's pids.max allow
 *   -EOPNOTSUPP  an adopted device's control table cannot be queried
 *   -ENOMEM, or the errno of the device's own call.
 */
SNT_API int snt_ctx_open(const struct snt_ctx_opts *opts, struct snt_ctx **ctx_out);

/**
 * snt_ctx_close - close a context and its devices
 *
 * NULL is legal and does nothing.
 *
 * Thread: any, while no other thread has a call running that names the context or something
 * made from it. What other threads still have of it is found and refused: then this is
 * -EBUSY.
 * Returns: 0; -EBUSY while a loop, a CQ, memory or anything else made from it exists, in
 * whatever thread, plain verbs objects and memory that is being registered included; or the
 * errno of a device that refused. After a failure all is still open, and closing can be
 * repeated.
 */
SNT_API int snt_ctx_close(struct snt_ctx *ctx);

/**
 * snt_ctx_device_count - how many devices the context has
 *
 * Thread: any.
 */
SNT_API unsigned snt_ctx_device_count(const struct snt_ctx *ctx);

/**
 * snt_ctx_device - a device by its index
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
