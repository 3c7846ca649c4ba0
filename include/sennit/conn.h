/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CONN_H
#define SENNIT_CONN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/ctx.h>
#include <sennit/loop.h>
#include <sennit/qp.h>

/*
 * Connections by address: one end listens, the other connects, and what both get is a
 * connected virtual QP (qp.h), whose lanes have all been tried.
 *
 *	server                                  client
 *
 *	snt_listener_create()                   snt_conn_connect()
 *	requested(): snt_conn_accept()
 *	event(SNT_CONN_CONNECTED)               event(SNT_CONN_CONNECTED)
 *	             ... snt_conn_qp(): post and poll as ever ...
 *	event(SNT_CONN_PEER_DONE)               snt_conn_disconnect()
 *	snt_conn_disconnect()
 *	event(SNT_CONN_OVER)                    event(SNT_CONN_OVER)
 *	snt_conn_destroy()                      snt_conn_destroy()
 *
 * Programs that cannot use addresses exchange cards by themselves (card.h) and do
 * without all of this.
 *
 * What happens in between. The two ends agree on a version and, if they have a
 * secret, prove to each other that they know it; tell each other their devices; and try
 * pairs of devices, one of each end's, with real messages in both directions: one of a
 * few bytes, one as long as the MTU, an empty one. Pairs that do not work are left
 * out, and why is remembered (snt_conn_explain()). Then the end that connects deals the
 * lanes over the pairs that work, and both make their virtual QP accordingly. Nothing
 * of this comes out of the program's CQ. All that a peer says is checked; until it has
 * proved to know the secret it costs no more than the connection itself, of which a
 * listener has a limited number.
 *
 * The carrier. Messages of the connection itself travel on
 * SNT_CARRIER_CM: an RC QP of its own, made by rdma_cm, or by the soft devices' own
 * connection manager, which speaks the same; addresses are those of RDMA devices;
 * SNT_CARRIER_TCP: a TCP connection, for networks or containers without rdma_cm; lanes
 * may be on devices that have nothing to do with its address.
 * It stays as long as the connection does.
 *
 * Detecting the end. A peer that has crashed, or whose host or network is gone, is
 * noticed within detect_ns, by either carrier, and whether or not anything is being sent.
 * Every quarter of that time the peer's device is asked, by an empty RDMA write that needs
 * nothing of its program; if no answer comes for five eighths of it, the connection is over.
 * Answers that have come are always taken before this is judged, and while the program does
 * not dispatch, or its process is stopped, no more than an eighth of detect_ns counts.
 * SNT_CARRIER_TCP keeps a QP for this on each pair of devices that lanes use, and the
 * connection is over when none of them is answered, or when TCP itself breaks. Lanes are
 * made to give up within seven eighths of detect_ns, too, with an ACK timeout of at most a
 * second (snt_qp_opts.timeout overrides it): devices may take four times the ACK timeout for
 * each of 8 tries, so a lane that has something to send gives up after at most 35 s where
 * detect_ns is longer. All of this is as late as the program's dispatching is.
 *
 * A peer that is merely busy, and does not dispatch, is not dead: its device answers for it.
 * So is one that is stopped, as in a debugger, unless its device is a soft one, which stops
 * with its process and is taken for dead like a crashed one.
 *
 * Who is who. Each loop has an identity, chosen by chance when it makes its first
 * connection, so that a peer which was restarted on the same address is known to be
 * another one. Peers that have a name (snt_conn_opts::name) are connected once: when
 * one comes again, with the same name at the same listener, its old connection is over,
 * with -ESTALE. Listeners that share a port (snt_listener_opts::share) know their own
 * connections only.
 *
 * Progress is made, and functions are called, by the connection's loop (loop.h), that is,
 * in snt_loop_dispatch(), snt_loop_wait(), snt_op_wait() and the waiting calls of this
 * header, which are -EBUSY inside of such a function. All other calls are legal there,
 * destroying the connection included; but a loop is not closed there while connections
 * are on their way out.
 *
 * After a fork they are the parent's. Calls that would change something, destroying
 * included, are -ECHILD in the child. A child has none of the sockets of soft devices and
 * TCP carriers, so that it keeps neither ports nor connections; docs/threads.md has the rest.
 *
 * Thread: loop, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_conn;
struct snt_listener;

/* The program's own bytes in a request, an answer or a refusal. */
#define SNT_CONN_DATA_MAX 256
/* A name, with its NUL. */
#define SNT_CONN_NAME_MAX 32
/* The shortest and longest secret. */
#define SNT_CONN_SECRET_MIN 16
#define SNT_CONN_SECRET_MAX 256
/* A numeric address as text, with its NUL. */
#define SNT_ADDRESS_MAX 48

enum snt_carrier {
	SNT_CARRIER_DEFAULT = 0, /* SNT_CARRIER_CM */
	SNT_CARRIER_CM,
	SNT_CARRIER_TCP,
};

enum snt_conn_state {
	SNT_CONN_REQUESTED = 1, /* by the peer: accept or reject */
	SNT_CONN_CONNECTING,
	SNT_CONN_ESTABLISHED,
	SNT_CONN_DISCONNECTING,
	SNT_CONN_ENDED, /* has come to its end, or never came to be */
};

enum snt_conn_event {
	/* The QP is made and not yet connected: the time to post receives which must be
	 * there before the peer can send. */
	SNT_CONN_PREPARE = 1,
	SNT_CONN_CONNECTED, /* it can be used */
	/* The peer disconnects: all that it posted has arrived. Its turn is over, ours
	 * is not: post what is left, then call snt_conn_disconnect(). Without an event
	 * function the library does. */
	SNT_CONN_PEER_DONE,
	/* The last one: snt_conn_query() has status and text. A QP that was made is
	 * closed: its completions come, then its SNT_CLOSED. One that reports to a CQ with
	 * ops is closed already. */
	SNT_CONN_OVER,
	/* The connection was lost, or its setup failed, and another attempt will follow
	 * (retries). The QP, if there was one, ends as with OVER; the next attempt makes
	 * another. */
	SNT_CONN_RETRYING,
};

struct snt_conn_opts {
	size_t size;
	/* The QP to be made, copied. Required. `lanes` is what is wished for, and the
	 * lesser wish of the two ends counts; 0: as many as the end that has more
	 * devices has. `devices` limits which are tried. notify_lanes, lane_devices,
	 * flow_labels and weights must be 0, adopted QPs cannot be used. With an SRQ
	 * (srq.h) `lanes` is 1. */
	const struct snt_qp_opts *qp;
	void (*event)(void *arg, struct snt_conn *conn, enum snt_conn_event event);
	void *arg;
	/* Where to, of snt_conn_connect(): "10.0.0.1", "fe80::1%eth0" or a name, whose
	 * first address of a family that there is a device for is taken. A name is looked
	 * for meanwhile, in a thread of its own; if there is none the connection ends, with
	 * -EINVAL, or -EHOSTUNREACH if that may pass. A port is a number. */
	const char *host;
	uint16_t port;
	const char *source; /* a numeric address of ours; NULL: any */
	enum snt_carrier carrier;
	/* For the peer's program; copied. */
	const void *data;
	size_t data_length;
	/* Both ends have the same, or none; copied. -EOPNOTSUPP in a library that was
	 * built without libcrypto. */
	const void *secret;
	size_t secret_length;
	/* For two programs that connect to each other at the same time, under the same name,
	 * and want one connection of it: our listener, which the peer connects to. One of the
	 * two attempts is chosen and becomes this connection, at both ends, without requested()
	 * being called. If the peer does not try, its listener is asked, as ever. It is in the
	 * same loop, and shares its port with no other. NULL: no meeting. */
	struct snt_listener *meet;
	const char *name;   /* of ours, see above; NULL: none */
	uint64_t setup_ns;  /* for all of the setup; 0: 10 s */
	uint64_t detect_ns; /* see above, from 50 ms; the lesser of both ends; 0: 5 s */
	uint64_t close_wr_id; /* of the QP's SNT_CLOSED, on a CQ without ops */
	/* Of snt_conn_connect(): after a failure that may pass, and after the loss of a
	 * connection, try again so many times. The pause is 10 ms at first, twice as
	 * much each time up to 10 s, and shortened by up to a half by chance. */
	uint32_t retries;
};

/**
 * snt_conn_connect - connect to a listener
 *
 * The connection is there at once, and established, or over, later.
 *
 * Ownership: the program's, until snt_conn_destroy(), also if it fails later.
 * Returns: 0, or, with nothing left behind,
 *   -EINVAL         an option out of range; a host or port that is none
 *   -EOPNOTSUPP     no device of the context has a connection manager; a secret
 *                   without libcrypto; adopted QPs
 *   -EADDRNOTAVAIL  the source is none of ours
 *   -ENETUNREACH    no device leads there
 *   -EAGAIN         64 names are being looked for already, in this process; no thread
 *                   can be started to look for one, because of RLIMIT_NPROC or pids.max
 *   -ENOMEM, or the errno of the system or device.
 */
SNT_API int snt_conn_connect(struct snt_loop *loop, const struct snt_conn_opts *opts,
			     struct snt_conn **conn_out);

/**
 * snt_conn_accept - accept what was requested
 * @opts: host, port, source, carrier and retries must be 0; secret and name are the
 *	listener's
 *
 * Returns: 0; -EINVAL as snt_conn_connect(); -EALREADY if it was accepted or
 * rejected before; -ENOTCONN if the peer has gone meanwhile.
 */
SNT_API int snt_conn_accept(struct snt_conn *conn, const struct snt_conn_opts *opts);

/**
 * snt_conn_reject - refuse what was requested
 * @text: a reason for people; NULL: none
 *
 * The peer's connection ends with -ECONNREFUSED, and has data and text. Ours is gone
 * when the call returns.
 *
 * Returns: 0; -EINVAL if data is too long; -EALREADY as snt_conn_accept().
 */
SNT_API int snt_conn_reject(struct snt_conn *conn, const char *text, const void *data,
			    size_t data_length);

/**
 * snt_conn_disconnect - end a connection, with all that was posted before
 *
 * When everything posted has been acknowledged (polled, where the QP reports to a CQ
 * that the program polls), the peer is told, and has SNT_CONN_PEER_DONE. When it has
 * disconnected as well, the connection is over, with status 0. A peer that does not is
 * waited for.
 *
 * Returns: 0; -EALREADY if it was called before; -ENOTCONN if it is not established.
 */
SNT_API int snt_conn_disconnect(struct snt_conn *conn);

/**
 * snt_conn_abort - end a connection, or the attempt at one, now
 * @text: a reason for the peer's people; NULL: none
 *
 * SNT_CONN_OVER follows here with -ECANCELED, at the peer with -ECONNABORTED. What was
 * posted is flushed.
 *
 * Returns: 0; -ENOTCONN if it is over already.
 */
SNT_API int snt_conn_abort(struct snt_conn *conn, const char *text);

/**
 * snt_conn_destroy - free a connection and its QP
 *
 * One that has no QP yet need not be over: it is given up, without an event. NULL is legal
 * and does nothing.
 *
 * Returns: 0; -EBUSY if its QP has been connected and SNT_CLOSED has not been polled;
 * the errno of a device that refused, after which it can be destroyed again.
 */
SNT_API int snt_conn_destroy(struct snt_conn *conn);

/**
 * snt_conn_wait - wait until a connection is established, or over
 * @timeout_ns: -1: for ever; 0: dispatch once, and do not wait
 *
 * Returns: 0 if it is established; its status if it is over; -EINPROGRESS if time is
 * up; -EBUSY inside of a function; -ECANCELED if it was destroyed meanwhile; the errno of
 * the loop.
 */
SNT_API int snt_conn_wait(struct snt_conn *conn, int64_t timeout_ns);

/**
 * snt_conn_wait_over - wait until a connection is over
 *
 * Returns: its status; otherwise as snt_conn_wait().
 */
SNT_API int snt_conn_wait_over(struct snt_conn *conn, int64_t timeout_ns);

/**
 * snt_conn_qp - the virtual QP
 *
 * Ownership: the connection's. With retries, another one after each CONNECTED.
 * Returns: NULL before SNT_CONN_PREPARE.
 */
SNT_API struct snt_qp *snt_conn_qp(const struct snt_conn *conn);

struct snt_conn_info {
	size_t size;
	enum snt_conn_state state;
	int32_t status;		/* of one that is over: 0 or -errno */
	const char *text;	/* why, never NULL; until the connection is destroyed */
	int32_t authenticated;	/* the peer knows the secret */
	uint64_t peer_identity; /* of its loop; 0: not known yet */
	uint32_t attempts;
	uint32_t mtu; /* agreed on */
	uint32_t pairs_tried;
	uint32_t pairs_good;
	uint64_t detect_ns;	/* agreed on */
	uint64_t setup_took_ns; /* once established */
	/* The peer's: of its request, answer or refusal. */
	const void *data;
	size_t data_length;
	char peer_name[SNT_CONN_NAME_MAX];
	char peer_address[64]; /* "10.0.0.1:4000", "[fe80::1]:4000" */
};

/**
 * snt_conn_query - what is known of a connection
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_conn_query(const struct snt_conn *conn, struct snt_conn_info *info_out);

/**
 * snt_conn_explain - every choice that was made, with its reason, as lines of text
 *
 * Returns: the length of the whole text, as snprintf(3): what did not fit is cut off.
 */
SNT_API ssize_t snt_conn_explain(const struct snt_conn *conn, char *buffer,
				 size_t size);

/* What became of a pair of devices, one of each end's. */
enum snt_pair_verdict {
	SNT_PAIR_NOT_TRIED = 0, /* there was no need, or no time */
	SNT_PAIR_WORKS,
	SNT_PAIR_SILENT,    /* nothing comes through */
	SNT_PAIR_MTU,	    /* short messages do, but none as long as the MTU */
	SNT_PAIR_EMPTY,	    /* messages do, but no empty ones */
	SNT_PAIR_ONE_WAY,   /* works in one direction only */
	SNT_PAIR_RESOURCES, /* no QP could be made for it */
	SNT_PAIR_KIND, /* addresses of different kinds: IPv4 and IPv6, or InfiniBand */
};

struct snt_conn_pair_info {
	size_t size;
	uint32_t device;	/* ours, as in snt_ctx_device() */
	uint32_t remote_device; /* the peer's */
	const char *name;	/* of ours, until the context is closed */
	char address[64];	/* of ours: its GID, or "LID 7" */
	char remote_address[64];
	int32_t works;		       /* as far as this end knows */
	int32_t lane;		       /* the first that is on it; -1: none */
	uint32_t lane_count;	       /* how many are, those without data included */
	enum snt_pair_verdict verdict; /* of this end */
	/* Of the other one, which tells it to the end that connects; else NOT_TRIED. */
	enum snt_pair_verdict peer_verdict;
	const char *text; /* what the verdict means, in words; static */
	const char *peer_text;
};

/**
 * snt_conn_pair - what became of a pair of devices
 * @pair: from 0, the best first
 *
 * What snt_conn_explain() says of pairs, for programs. Also of a connection that is over,
 * or never came to be: then it says why. With retries, of the last try.
 *
 * Returns: 0; -ENOENT past the last; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_conn_pair(const struct snt_conn *conn, unsigned pair,
			  struct snt_conn_pair_info *info_out);

struct snt_listener_opts {
	size_t size;
	/* An address of ours; NULL: all. Or a name, which is looked for before the call
	 * returns, for as long as setup_ns says: it could tell neither the port nor that
	 * there is none any earlier. A loop that must not stand still for that has an
	 * address here. */
	const char *host;
	uint16_t port; /* 0: any that is free */
	enum snt_carrier carrier;
	uint32_t backlog; /* connections on their way to being requested; 0: 1024 */
	/* All that came from this listener; 0: 4096, which is all that a loop can have
	 * by SNT_CARRIER_CM. */
	uint32_t connection_max;
	const void *secret; /* as in snt_conn_opts */
	size_t secret_length;
	/* As in snt_conn_opts, of each that comes; and for finding `host`. */
	uint64_t setup_ns;
	/* Somebody wants to be connected, and knows the secret: accept or reject, now or
	 * later. The connection is the program's from now on. NULL: snt_listener_wait()
	 * has it. */
	void (*requested)(void *arg, struct snt_listener *listener,
			  struct snt_conn *conn);
	void *arg;
	/* Another listener, in any loop of the context, whose port this one shares: peers are
	 * assigned to both in turn, as they arrive, and belong to the listener, its loop and
	 * its thread from then on. A listener without a function that opened the port leaves
	 * all peers to those that share it. A peer that is assigned to a listener without
	 * room is refused. The listener that opened the port must exist during this call,
	 * and its loop must run; the port is closed with it. host, port and carrier are 0
	 * then; all other options are this listener's own. NULL: none. */
	struct snt_listener *share;
};

/**
 * snt_listener_create - listen for connections
 *
 * Returns: 0, or, with nothing left behind, -EINVAL, also for a name that is none;
 * -ETIMEDOUT or -EHOSTUNREACH for one that cannot be found now; -EADDRINUSE; -EADDRNOTAVAIL;
 * -EAGAIN and -EOPNOTSUPP as snt_conn_connect(); -ENOMEM, or the errno of the system or
 * device.
 */
SNT_API int snt_listener_create(struct snt_loop *loop,
				const struct snt_listener_opts *opts,
				struct snt_listener **listener_out);

/**
 * snt_listener_port - on which port
 */
SNT_API uint16_t snt_listener_port(const struct snt_listener *listener);

/**
 * snt_listener_address - an address at which peers reach a listener
 * @position: from 0, the best first
 * @buffer: gets a numeric address, such as "10.0.0.1", with its NUL
 * @size: of the buffer; SNT_ADDRESS_MAX always suffices
 *
 * For the peer's snt_conn_opts::host; snt_listener_port() is its port. A listener that was
 * given a host has the address of that host alone. One without has an address for each
 * device of the context, in the order of the GIDs' scores (device.h): those that routers
 * forward come before loopback and link-local ones. Where no device has an IP address, as on
 * InfiniBand, the addresses are those of network interfaces: with SNT_CARRIER_CM of the
 * interfaces that belong to a device, with SNT_CARRIER_TCP of all, loopback last.
 *
 * Peers on other hosts cannot reach loopback addresses, which are the default of soft
 * devices (SENNIT_SOFT_ADDRESSES). A link-local IPv6 address has no scope, because the
 * interface to name is the peer's: it connects to "fe80::1%eth0" through its own eth0.
 *
 * Returns: 0; -ENOENT past the last; -ENOSPC if it does not fit; the errno of the system.
 */
SNT_API int snt_listener_address(const struct snt_listener *listener, unsigned position,
				 char *buffer, size_t size);

/**
 * snt_listener_wait - wait for a request
 * @timeout_ns: -1: for ever; 0: do not wait
 *
 * For listeners without a function.
 *
 * Ownership: the connection is the program's.
 * Returns: 0; -EAGAIN if there is none in time; -EINVAL if there is a function; -EBUSY
 * inside of one; -ECANCELED if the listener was destroyed meanwhile; the errno of the loop.
 */
SNT_API int snt_listener_wait(struct snt_listener *listener, int64_t timeout_ns,
			      struct snt_conn **conn_out);

/**
 * snt_listener_destroy - listen no more
 *
 * Connections that the program has go on; others are refused. NULL is legal and does
 * nothing.
 *
 * Returns: 0.
 */
SNT_API int snt_listener_destroy(struct snt_listener *listener);

#ifdef __cplusplus
}
#endif

#endif
