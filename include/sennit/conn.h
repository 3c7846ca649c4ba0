/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CONN_H
#define SENNIT_CONN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/endpoint.h>
#include <sennit/loop.h>
#include <sennit/qp.h>

/*
 * Connections by address: one end listens, the other connects, and both get a connected
 * virtual QP (qp.h), every lane of which has been tested.
 *
 *	struct snt_endpoint server = SNT_INIT(server, .host = "10.0.0.1", .port = 4000);
 *	struct snt_qp_opts qp = SNT_INIT(qp, .cq = cq);
 *	struct snt_conn_opts opts = SNT_INIT(opts, .qp = &qp);
 *	struct snt_listener *listener;
 *	struct snt_conn *conn;
 *
 *	if (serves) {
 *		check(snt_listener_create(loop, &server, NULL, &listener));
 *		check(snt_listener_wait(listener, -1, &conn));
 *		check(snt_listener_destroy(listener));
 *		check(snt_conn_accept(conn, &opts));
 *	} else {
 *		check(snt_conn_connect(loop, &server, &opts, &conn));
 *	}
 *	check(snt_conn_wait(conn, -1));
 *	use(snt_conn_qp(conn));
 *	check(snt_conn_disconnect(conn, 1000000000));
 *	check(snt_conn_wait_over(conn, -1));
 *	check(snt_conn_destroy(conn));
 *
 * The functions that wait run the loop. A program that does not wait gives the listener
 * and each connection a function, and the loop calls it:
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
 * Programs that cannot use addresses exchange cards themselves (card.h) and do not need
 * this header.
 *
 * Setup. The two ends agree on a version and, if they have a secret, prove to each
 * other that they know it. They list their devices and test pairs of devices, one at
 * each end, with real messages in both directions: one of a few bytes, one as long as
 * the MTU, one empty. Pairs that fail are left out, and the reason is kept
 * (snt_conn_explain()). The connecting end then distributes the lanes over the working
 * pairs, and both ends make their virtual QP accordingly. None of this traffic appears
 * in the program's CQ. Everything a peer sends is checked. A peer that has not yet
 * proved that it knows the secret uses no resources but its connection, and a listener
 * limits the number of those.
 *
 * The carrier transports the connection's own messages and exists as long as the
 * connection. It is one of:
 *
 * SNT_CARRIER_CM: an RC QP of its own, made by rdma_cm, or by the soft devices'
 * connection manager, which uses the same protocol; addresses are those of RDMA
 * devices;
 *
 * SNT_CARRIER_TCP: a TCP connection, for networks or containers without rdma_cm; lanes
 * may be on devices unrelated to its address.
 *
 * Failure detection. A peer that has crashed, or whose host or network is gone, is
 * detected within detect_ns, with either carrier, whether or not the program sends
 * anything. Every quarter of that time an empty RDMA write, which the peer's device
 * answers without the peer's program, probes the peer; if no answer comes for five
 * eighths of it, the connection is over. Answers that have arrived are always processed
 * before that decision, and a period in which the program does not dispatch, or its
 * process is stopped, counts as no more than an eighth of detect_ns. SNT_CARRIER_TCP
 * keeps a QP for probes on each pair of devices that lanes use, and the connection is
 * over when none of the probes is answered, or when TCP itself fails. Lanes are
 * configured to give up within seven eighths of detect_ns, too, with an ACK timeout of
 * at most a second (snt_qp_opts.timeout overrides it): devices may take four times the
 * ACK timeout for each of 8 tries, so a lane that has something to send gives up after
 * at most 35 s where detect_ns is longer. If the program dispatches late, all of this
 * is late by as much.
 *
 * A peer that is merely busy and does not dispatch is not taken for dead, because its
 * device answers the probes. The same holds for a peer whose process is stopped, as in
 * a debugger, unless its device is a soft one: that stops with its process, and the
 * peer is taken for dead as if it had crashed.
 *
 * A QP that breaks (SNT_QP_BROKEN, qp.h) ends its connection: once that has been found by
 * polling, the connection is over, or is tried again (retries). The end at
 * which the first error was reported has a status that follows from it, such as -EACCES for a
 * key that the peer does not know or -EHOSTUNREACH for retries that ran out, and the text
 * names lane, device and status; the peer's status is -EREMOTEIO, with the same text. A lane
 * that fails while others go on ends nothing.
 *
 * Identity. Each loop has an identity, chosen at random when it makes its first
 * connection, so that a peer restarted on the same address is recognised as a different
 * one. A peer that has a name (snt_endpoint.name) has one connection: when it
 * connects again, with the same name to the same listener, its old connection ends with
 * -ESTALE. Listeners that share a port (snt_listener_opts::share) each know only their
 * own connections.
 *
 * Plain connections. With SNT_CARRIER_PLAIN the peer may be any program that uses rdma_cm,
 * in either role: librdmacm's own (rping, ucmatose), storage targets, or another end of
 * sennit's that is plain. rdma_cm connects the connection's one QP itself, on the device that
 * leads to the peer; there is no handshake, no trial of lanes and no secret, and the QP must
 * be SNT_QP_PASS_THROUGH, since such a peer obeys verbs' rules. An end that expects a
 * handshake and one that is plain refuse each other, with a sentence at sennit's ends. What
 * differs from other connections:
 *
 * - Data travels in rdma_cm's private data: at most SNT_PLAIN_REQUEST_MAX,
 *   SNT_PLAIN_ANSWER_MAX and SNT_PLAIN_REFUSAL_MAX bytes. rdma_cm does not tell its length:
 *   as many bytes as that arrive, with zeros behind what was sent. The texts of
 *   snt_conn_reject() and snt_conn_abort() do not reach the peer.
 * - Receives are posted at SNT_CONN_PREPARE, as always. rnr_retry_count, retry_count and
 *   timeout of snt_qp_opts hold for the local QP, and the peer's is asked to use the same;
 *   by default both wait for receives that are late. The peer must not send a message that
 *   has no receive, or one that is too short: verbs end the QP then.
 * - read_depth is offered in both directions; the peer may take less, even 0. What was agreed
 *   on is in snt_conn_info. A READ or atomic where it is 0 never completes on many devices.
 * - Remote memory: the program fills in a struct snt_token from what the peer sends, with
 *   key_count 1, and the remote key in key[0]. The peer needs the key of the device that the
 *   QP is on, which snt_qp_query_lane() tells.
 * - There is no SNT_CONN_PEER_DONE, because rdma_cm has no half-closed connections: when either
 *   end disconnects, the connection is over, at both, and WRs in flight are flushed. The
 *   status is 0 if the peer disconnected, and also if its process has ended: rdma_cm does not
 *   tell one from the other. Programs say goodbye by messages of their own.
 * - detect_ns limits the ACK timeout only. Nothing is sent while the program sends nothing, so
 *   the loss of an idle peer is not noticed. The loss of the local device is, with -ENODEV.
 *
 * snt_conn_query_cm() lists what rdma_cm did, and when.
 *
 * The connection's loop (loop.h) makes progress and runs callbacks, that is, in
 * snt_loop_dispatch(), snt_loop_wait(), snt_op_wait() and the waiting calls of this
 * header. These calls fail with -EBUSY inside a callback. All other calls are legal
 * there, including destroying the connection, except that a loop cannot be closed there
 * while destroyed connections are still being torn down.
 *
 * After a fork, connections belong to the parent. Calls that would change something,
 * including destroying, fail with -ECHILD in the child. A child does not inherit the
 * sockets of soft devices and TCP carriers, so it keeps neither ports nor connections
 * open; docs/use/threads.md has the rest.
 *
 * Thread: loop, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct snt_conn;
struct snt_listener;

/* Maximum application data in a request, an answer or a refusal. */
#define SNT_CONN_DATA_MAX 256

/* The same of plain connections. */
#define SNT_PLAIN_REQUEST_MAX 56
#define SNT_PLAIN_ANSWER_MAX  196
#define SNT_PLAIN_REFUSAL_MAX 148

enum snt_conn_state {
	SNT_CONN_REQUESTED = 1, /* by the peer: accept or reject */
	SNT_CONN_CONNECTING,
	SNT_CONN_ESTABLISHED,
	SNT_CONN_DISCONNECTING,
	SNT_CONN_ENDED, /* over, or setup failed */
};

enum snt_conn_event {
	/* The QP is made and not yet connected: post the receives that must be there
	 * before the peer can send. */
	SNT_CONN_PREPARE = 1,
	SNT_CONN_CONNECTED, /* it can be used */
	/* The peer disconnects: everything it posted has arrived. This end may still
	 * post; then it calls snt_conn_disconnect(). Without an event function the
	 * library calls it, with no timeout. */
	SNT_CONN_PEER_DONE,
	/* The last one: snt_conn_query() has status and text. If a QP was made, it is
	 * being closed: its completions come, then its SNT_OP_CLOSED. A QP that reports to
	 * a CQ with ops is closed already. */
	SNT_CONN_OVER,
	/* The connection was lost, or its setup failed, and another attempt will follow
	 * (retries). The QP, if there was one, ends as with SNT_CONN_OVER; the next
	 * attempt makes a new one. */
	SNT_CONN_RETRYING,
};

struct snt_conn_opts {
	size_t size;
	/* Options of the QP to make, copied. Required. `lanes` is the wanted number,
	 * and the lesser of the two ends' numbers is used; 0: as many as the end with
	 * more devices has devices. `devices` limits which devices are tried.
	 * notify_lanes, lane_devices, flow_labels and weights must be 0, and adopted
	 * QPs cannot be used. SNT_QP_PASS_THROUGH must be set at both ends, or at none. */
	const struct snt_qp_opts *qp;
	void (*event)(void *arg, struct snt_conn *conn, enum snt_conn_event event);
	void *arg;
	/* For the peer's program; copied. */
	const void *data;
	size_t data_length;
	uint64_t close_wr_id; /* of the QP's SNT_OP_CLOSED, on a CQ without ops */
	/* Connecting: how often to retry after a temporary failure, and after the loss of a
	 * connection. The delay is 10 ms at first, doubles each time up to 10 s, and is
	 * randomly shortened by up to a half. */
	uint32_t retries;
	/* Connecting, for two programs that connect to each other at the same time, under
	 * the same name (snt_endpoint.name), and want a single connection: the local
	 * listener that the peer connects to. One of the two attempts is chosen and becomes
	 * this connection, at both ends, without requested() being called. If the peer does
	 * not connect itself, its listener handles the request as usual. The local listener
	 * is in the same loop and shares its port with no other listener. NULL: no
	 * simultaneous connection. */
	struct snt_listener *meet;
};

/**
 * snt_conn_connect - connect to a listener
 * @endpoint: host and port are required
 *
 * The connection object is returned at once; it is established, or over, later.
 *
 * Ownership: the program's, until snt_conn_destroy(), also if it fails later.
 * Returns: 0, or, with nothing left behind,
 *   -EINVAL         an option out of range; not a valid host or port
 *   -EOPNOTSUPP     no device of the context has a connection manager; a secret
 *                   without libcrypto; adopted QPs
 *   -EADDRNOTAVAIL  the source is not a local address
 *   -ENETUNREACH    no device has a route to the host
 *   -EAGAIN         this process is resolving 64 names already; or no thread can be
 *                   started to resolve one, because of RLIMIT_NPROC or pids.max
 *   -ENOMEM, or the errno of the system or device.
 */
SNT_API int snt_conn_connect(struct snt_loop *loop, const struct snt_endpoint *endpoint,
			     const struct snt_conn_opts *opts,
			     struct snt_conn **conn_out);

/**
 * snt_conn_accept - accept a requested connection
 *
 * The endpoint is the listener's. `retries` and `meet` are for the end that connects.
 *
 * Returns: 0; -EINVAL as snt_conn_connect(); -EALREADY if it was accepted or
 * rejected before; -ENOTCONN if the peer has since gone.
 */
SNT_API int snt_conn_accept(struct snt_conn *conn, const struct snt_conn_opts *opts);

/**
 * snt_conn_reject - refuse a requested connection
 * @text: human-readable reason, sent to the peer; NULL: none
 *
 * The peer's connection ends with -ECONNREFUSED, and carries data and text. The local
 * connection no longer exists when the call returns.
 *
 * Returns: 0; -EINVAL if data is too long; -EALREADY as snt_conn_accept().
 */
SNT_API int snt_conn_reject(struct snt_conn *conn, const char *text, const void *data,
			    size_t data_length);

/**
 * snt_conn_disconnect - end a connection after everything posted has completed
 * @timeout_ns: for all of it; 0 or negative: for ever
 *
 * When everything posted has been acknowledged (polled, where the QP reports to a CQ
 * that the program polls), the peer gets SNT_CONN_PEER_DONE. When the peer has
 * disconnected as well, the connection is over, with status 0. If that takes longer than
 * the timeout, the connection ends as with snt_conn_abort(), but with -ETIMEDOUT at this
 * end.
 *
 * Returns: 0; -EALREADY if it was called before; -ENOTCONN if it is not established.
 */
SNT_API int snt_conn_disconnect(struct snt_conn *conn, int64_t timeout_ns);

/**
 * snt_conn_abort - end a connection, or the attempt at one, now
 * @text: human-readable reason, sent to the peer; NULL: none
 *
 * SNT_CONN_OVER follows, with -ECANCELED at this end and -ECONNABORTED at the peer.
 * Posted WRs are flushed.
 *
 * Returns: 0; -ENOTCONN if the connection is already over.
 */
SNT_API int snt_conn_abort(struct snt_conn *conn, const char *text);

/**
 * snt_conn_destroy - free a connection and its QP
 *
 * A connection that has no QP yet need not be over: it is abandoned, without an event.
 * NULL is legal and does nothing.
 *
 * Returns: 0; -EBUSY if its QP has been connected and SNT_OP_CLOSED has not been polled;
 * the errno of a device that refused, after which it can be destroyed again.
 */
SNT_API int snt_conn_destroy(struct snt_conn *conn);

/**
 * snt_conn_wait - wait until a connection is established, or over
 * @timeout_ns: negative: for ever; 0: dispatch once, and do not wait
 *
 * Returns: 0 if it is established; its status if it is over; -ETIME on timeout, after
 * which the connection goes on; -EBUSY inside a callback; -ECANCELED if it was destroyed
 * meanwhile; the errno of the loop.
 */
SNT_API int snt_conn_wait(struct snt_conn *conn, int64_t timeout_ns);

/**
 * snt_conn_wait_over - wait until a connection is over
 *
 * Returns: its status; otherwise as snt_conn_wait().
 */
SNT_API int snt_conn_wait_over(struct snt_conn *conn, int64_t timeout_ns);

/**
 * snt_conn_qp - get the virtual QP
 *
 * Ownership: the connection's. With retries, each SNT_CONN_CONNECTED comes with a new
 * QP.
 * Returns: NULL before SNT_CONN_PREPARE.
 */
SNT_API struct snt_qp *snt_conn_qp(const struct snt_conn *conn);

struct snt_conn_info {
	size_t size;
	enum snt_conn_state state;
	int32_t status;		/* once it is over: 0 or -errno */
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
	char peer_name[SNT_NAME_MAX];
	char peer_address[64]; /* "10.0.0.1:4000", "[fe80::1]:4000" */
	/* Of plain connections, while they exist: READs and atomics in flight at once that
	 * the peer may have, and that this end may have. */
	uint32_t reads_in;
	uint32_t reads_out;
};

/**
 * snt_conn_query - get state and properties of a connection
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_conn_query(const struct snt_conn *conn, struct snt_conn_info *info_out);

/**
 * snt_conn_explain - list the decisions of the setup and their reasons, as text
 *
 * Returns: the length of the whole text, as snprintf(3) does; the text is truncated to
 * fit.
 */
SNT_API ssize_t snt_conn_explain(const struct snt_conn *conn, char *buffer,
				 size_t size);

/* Result of testing a pair of devices, one at each end. */
enum snt_pair_verdict {
	SNT_PAIR_NOT_TRIED = 0, /* not needed, or no time left */
	SNT_PAIR_WORKS,
	SNT_PAIR_SILENT,    /* no message arrives */
	SNT_PAIR_MTU,	    /* short messages arrive, those as long as the MTU do not */
	SNT_PAIR_EMPTY,	    /* messages arrive, empty ones do not */
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
	int32_t works;	     /* as far as this end knows */
	int32_t lane;	     /* the first on this pair; -1: none */
	uint32_t lane_count; /* lanes on this pair, notify and message lanes included */
	enum snt_pair_verdict verdict; /* of this end */
	/* Of the peer, which reports it to the connecting end; else NOT_TRIED. */
	enum snt_pair_verdict peer_verdict;
	const char *text; /* what the verdict means, in words; static */
	const char *peer_text;
};

/**
 * snt_conn_query_pair - get the test result of a pair of devices
 * @pair: from 0, the best first
 *
 * What snt_conn_explain() says about pairs, in a form for programs. Also works for a
 * connection that is over or whose setup failed, and tells why. With retries, describes
 * the last attempt.
 *
 * Returns: 0; -ENOENT past the last; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_conn_query_pair(const struct snt_conn *conn, unsigned pair,
				struct snt_conn_pair_info *info_out);

/* What a connection manager did, or was told to do. */
enum snt_cm_event {
	SNT_CM_RESOLVED = 1, /* connecting: the route is known */
	SNT_CM_CONNECT,	     /* connecting: the request goes out */
	SNT_CM_REQUEST,	     /* listening: a request has come */
	SNT_CM_ACCEPT,	     /* listening: the answer goes out */
	SNT_CM_RESPONSE,     /* connecting: the answer has come */
	SNT_CM_ESTABLISHED,  /* listening: the peer has confirmed */
	SNT_CM_ADDRESS_CHANGE,
	SNT_CM_REJECTED,   /* the peer refuses, or gives up */
	SNT_CM_FAILED,	   /* the peer does not answer; the device is gone */
	SNT_CM_DISCONNECT, /* this end disconnects */
	SNT_CM_DISCONNECTED,
};

struct snt_conn_cm_info {
	size_t size;
	enum snt_cm_event event;
	int32_t status;	   /* FAILED: a negative errno */
	uint32_t reason;   /* REJECTED: InfiniBand's number; 28 is the program's */
	uint64_t after_ns; /* since the attempt began, or the request came */
	const char *text;  /* the event, in words; static */
};

/**
 * snt_conn_query_cm - list the events of the connection manager
 * @position: from 0, the first
 *
 * Of plain connections; of those with SNT_CARRIER_CM, what the carrier's manager reported.
 * At most eight are kept, and the last always is. With retries, they are those of the last
 * attempt.
 *
 * Returns: 0; -ENOENT past the last; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_conn_query_cm(const struct snt_conn *conn, unsigned position,
			      struct snt_conn_cm_info *info_out);

struct snt_listener_opts {
	size_t size;
	uint32_t backlog; /* connections in setup, before requested(); 0: 1024 */
	/* Maximum number of connections from this listener; 0: 4096, the most that a
	 * loop can have with SNT_CARRIER_CM. */
	uint32_t connection_max;
	/* A peer that knows the secret requests a connection: accept or reject it, now
	 * or later. The connection is the program's from now on. NULL:
	 * snt_listener_wait() returns it. */
	void (*requested)(void *arg, struct snt_listener *listener,
			  struct snt_conn *conn);
	void *arg;
	/* Another listener, in any loop of the context, whose port this one shares: peers are
	 * assigned to both in turn, as they arrive, and belong to the listener, its loop and
	 * its thread from then on. A listener without a function that opened the port leaves
	 * all peers to those that share it. A peer that is assigned to a listener without
	 * room is refused. The listener that opened the port must exist during this call,
	 * and its loop must run; the port is closed with it. host, port and carrier are
	 * those of that listener; all else, in the endpoint too, is this listener's own.
	 * NULL: none. */
	struct snt_listener *share;
};

/**
 * snt_listener_create - listen for connections
 * @endpoint: NULL: any free port of all local addresses
 * @opts: NULL for all defaults
 *
 * Returns: 0, or, with nothing left behind, -EINVAL, also for an unknown host name;
 * -ETIMEDOUT or -EHOSTUNREACH for a name that cannot be resolved now; -EADDRINUSE;
 * -EADDRNOTAVAIL; -EAGAIN and -EOPNOTSUPP as snt_conn_connect(); -ENOMEM, or the errno
 * of the system or device.
 */
SNT_API int snt_listener_create(struct snt_loop *loop,
				const struct snt_endpoint *endpoint,
				const struct snt_listener_opts *opts,
				struct snt_listener **listener_out);

/**
 * snt_listener_port - get the port of a listener
 */
SNT_API uint16_t snt_listener_port(const struct snt_listener *listener);

/**
 * snt_listener_address - an address at which peers reach a listener
 * @position: from 0, the best first
 * @buffer: receives a numeric address, such as "10.0.0.1", with its NUL
 * @size: of the buffer; SNT_ADDRESS_MAX always suffices
 *
 * For the peer's snt_endpoint.host; snt_listener_port() is its port. A listener that was
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
 * Returns: 0; -ENOENT past the last; -ENOSPC if @size is too small; the errno of the
 * system.
 */
SNT_API int snt_listener_address(const struct snt_listener *listener, unsigned position,
				 char *buffer, size_t size);

/**
 * snt_listener_wait - wait for a request
 * @timeout_ns: negative: for ever; 0: do not wait
 *
 * For listeners without a requested() function.
 *
 * Ownership: the connection is the program's.
 * Returns: 0; -ETIME if none came before the timeout; -EINVAL if the listener has a
 * function; -EBUSY inside a callback; -ECANCELED if the listener was destroyed
 * meanwhile; the errno of the loop.
 */
SNT_API int snt_listener_wait(struct snt_listener *listener, int64_t timeout_ns,
			      struct snt_conn **conn_out);

/**
 * snt_listener_destroy - stop listening
 *
 * Connections that the program holds continue; all others are refused. NULL is legal
 * and does nothing.
 *
 * Returns: 0.
 */
SNT_API int snt_listener_destroy(struct snt_listener *listener);

#ifdef __cplusplus
}
#endif

#endif
