/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_CM_H
#define SNT_DEV_CM_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

/*
 * Connection managers: how QPs of two hosts come together by address and port.
 *
 * Each kind of device implements one table: verbs through librdmacm, soft devices by
 * a connection manager of their own. Both speak the same protocol, so the two kinds
 * reach each other. The shape is librdmacm's, for QPs that librdmacm did not make:
 *
 *	server                            client
 *
 *	listen                            resolve
 *	                                  RESOLVED: QP to INIT; connect
 *	REQUEST: QP to INIT, RTR, RTS;
 *	accept or reject
 *	                                  RESPONSE: QP to RTR, RTS;
 *	                                  establish or reject
 *	ESTABLISHED
 *	                       disconnect
 *	DISCONNECTED                      DISCONNECTED
 *
 * REJECTED, FAILED and DISCONNECTED are final: of these an id has at most one event,
 * which is its last. An id is destroyed at any time, by its owner, and after its
 * QP; the peer is told, if there is one. Nothing blocks.
 *
 * A manager belongs to one thread, and its ids with it. Its events, of all its devices,
 * come out of one fd; connections outlive the listener that they came from. Any number of
 * managers, each in a thread of its own, may have the same devices. Ports are taken for all
 * managers of a device; a request comes to the manager of its listener, and may be moved from
 * there to another one, to be accepted in another thread.
 *
 * Functions return 0 or a negative errno, with a sentence, and write their out pointer
 * only on success.
 */

/* Room for data in each message. Messages do not carry its length: what arrives always
 * has the maximum, with zeros after what was sent. */
#define SNT__CM_REQUEST_DATA  56
#define SNT__CM_RESPONSE_DATA 196
#define SNT__CM_REJECT_DATA   148
#define SNT__CM_DATA_MAX      SNT__CM_RESPONSE_DATA

/* The RNR timer that qp_attr() sets, unless changed: 0.64 ms. librdmacm leaves it 0,
 * which means 655 ms. */
#define SNT__CM_RNR_TIMER 12

/* Why a peer refuses. Programs that refuse give no reason but
 * SNT__CM_REASON_CONSUMER. */
enum snt__cm_reason {
	SNT__CM_REASON_NO_QP = 1,
	SNT__CM_REASON_NO_RESOURCES = 3,
	SNT__CM_REASON_TIMEOUT = 4, /* the peer timed out waiting for us, or gave up */
	SNT__CM_REASON_UNSUPPORTED = 5,
	SNT__CM_REASON_UNKNOWN_ID = 6,
	SNT__CM_REASON_NOBODY_LISTENS = 8,
	SNT__CM_REASON_TRANSPORT = 9,
	SNT__CM_REASON_STALE = 10, /* of an earlier connection; a retry may succeed */
	SNT__CM_REASON_GID = 12,
	SNT__CM_REASON_MTU = 26,
	SNT__CM_REASON_CONSUMER = 28,
};

enum snt__cm_event_type {
	SNT__CM_EVENT_RESOLVED,
	SNT__CM_EVENT_REQUEST,
	SNT__CM_EVENT_RESPONSE,
	SNT__CM_EVENT_ESTABLISHED,
	SNT__CM_EVENT_ADDRESS, /* our address has moved to another port; nothing is lost
			        * yet */
	SNT__CM_EVENT_REJECTED,
	SNT__CM_EVENT_FAILED,
	SNT__CM_EVENT_DISCONNECTED,
};

struct snt__cm_table;

struct snt__cm {
	const struct snt__cm_table *table;
};

/* A listener, or one end of a connection. */
struct snt__cm_id {
	struct snt__cm *cm;
	/* Index into the devices given to open(). Known from RESOLVED or REQUEST on,
	 * but not for listeners. */
	unsigned device;
	void *user; /* the program's */
};

struct snt__cm_event {
	enum snt__cm_event_type type;
	struct snt__cm_id *id;
	struct snt__cm_id
		*listener; /* REQUEST: the listener; `id` is new, and belongs to the
			    * program */
	int status;	   /* FAILED: a negative errno; -ENODEV: our device is gone */
	unsigned reason;   /* REJECTED: enum snt__cm_reason, or another value */
	/* REQUEST and RESPONSE: what the peer offers, and asks of us. */
	uint32_t qpn;
	uint8_t responder_resources; /* READs and atomics that it will send at once */
	uint8_t initiator_depth;     /* the same that it can take */
	uint8_t rnr_retry_count;
	bool srq;
	/* REQUEST, RESPONSE, REJECTED. */
	uint8_t data_length;
	uint8_t data[SNT__CM_DATA_MAX];
};

/* Our QP, as connect and accept describe it to the peer. */
struct snt__cm_param {
	const void *data; /* copied */
	uint8_t data_length;
	uint32_t qpn;
	bool srq;
	uint8_t responder_resources; /* READs and atomics that we can take at once */
	uint8_t initiator_depth;     /* the same that we will send */
	uint8_t rnr_retry_count;     /* of the peer's QP; 7: for ever */
	/* Of connect, for the QPs of both ends. 0 for a timeout or an MTU means what
	 * the device has; librdmacm decides on the MTU itself. */
	uint8_t retry_count;
	uint8_t ack_timeout; /* as ibv_qp_attr.timeout */
	uint8_t mtu;	     /* enum ibv_mtu */
};

struct snt__cm_device {
	struct ibv_context *context;
	uint8_t port;
};

struct snt__cm_opts {
	const struct snt__cm_device *devices; /* of the table's kind; copied */
	unsigned device_count;
	/* Limits of each device; 0: the default. What exceeds them is refused, to peers
	 * with SNT__CM_REASON_NO_RESOURCES if the protocol allows. All managers of a
	 * soft device share the limits of the first of them; those of later ones are
	 * ignored. */
	unsigned connection_max; /* 1024 */
	unsigned listener_max;	 /* 16 */
};

struct snt__cm_table {
	/**
	 * open - a manager for devices
	 *
	 * Returns: 0; -EINVAL, also for a soft device that is given twice; -ENOMEM; the
	 * errno of the fd, such as -ENOENT where the kernel has no rdma_cm.
	 */
	int (*open)(const struct snt__cm_opts *opts, struct snt__cm **cm_out);

	/* 0; -EBUSY while it has ids. NULL is legal. It does not wait until peers know
	 * of ids that were destroyed: a peer that has not been told yet finds out by
	 * itself. */
	int (*close)(struct snt__cm *cm);

	/* Readable while there is an event. Does not block. */
	int (*fd)(struct snt__cm *cm);

	/* 0, or -EAGAIN: no event. REQUESTs that cannot be served are refused without
	 * an event, and one whose sender gives up before it was taken is dropped. */
	int (*next_event)(struct snt__cm *cm, struct snt__cm_event *event_out);

	/**
	 * listen - be there for requests
	 * @address: the unspecified one means all of all devices; port 0: any
	 * @backlog: requests that may wait to be taken; 0: 128. More are refused.
	 *
	 * Returns: 0; -EADDRINUSE; -EADDRNOTAVAIL, no device has it; -EAFNOSUPPORT;
	 * -ENOBUFS, too many; -ENOMEM.
	 */
	int (*listen)(struct snt__cm *cm, const struct sockaddr *address,
		      unsigned backlog, struct snt__cm_id **id_out);

	/**
	 * resolve - find a way to an address, with RESOLVED or FAILED
	 * @source: one of ours, or NULL for any
	 *
	 * Returns: as listen; -ENETUNREACH, no device leads there.
	 */
	int (*resolve)(struct snt__cm *cm, const struct sockaddr *source,
		       const struct sockaddr *target, unsigned timeout_ms,
		       struct snt__cm_id **id_out);

	/* These return -EINVAL for data that does not fit, and -ENOTCONN in a state
	 * that does not allow the call; the final event has then come, or will. */
	int (*connect)(struct snt__cm_id *id, const struct snt__cm_param *param);
	int (*accept)(struct snt__cm_id *id, const struct snt__cm_param *param);
	int (*reject)(struct snt__cm_id *id, const void *data, size_t length);
	int (*establish)(struct snt__cm_id *id);

	/**
	 * move - give a request to another manager
	 * @id: of a REQUEST that was taken, and neither accepted nor rejected
	 * @to: of the same table; neither opened nor closed meanwhile
	 *
	 * Called by the thread of the manager that has the id. Afterwards the id belongs
	 * to the thread of @to, and its events come out of @to, those that were pending
	 * included. They may do so before this call returns, so id->user must have been
	 * set. id->device becomes the index that @to has for the device.
	 *
	 * Returns: 0, also if @to has it already; -ENOTCONN in another state, or if
	 * the final event was taken; -EINVAL, @to has not got the device, or is of
	 * another table; -ENOBUFS, it has too many connections.
	 */
	int (*move)(struct snt__cm_id *id, struct snt__cm *to);

	/* Tells the manager that the peer is connected, even if its message was lost:
	 * something was received, or IBV_EVENT_COMM_EST has come, which QPs in RTR
	 * have. Does nothing if this is known already. */
	int (*notify)(struct snt__cm_id *id);

	/* Has no effect, and succeeds, if the connection is over already. */
	int (*disconnect)(struct snt__cm_id *id);

	/* Never fails; the id is gone. NULL is legal. */
	void (*destroy)(struct snt__cm_id *id);

	/**
	 * qp_attr - what a QP needs to go to the state in @attr
	 * @attr: zero but for qp_state: INIT, RTR or RTS
	 *
	 * Access flags are all there are; change them, and the rest, at will.
	 *
	 * Returns: 0; -ENOTCONN if the peer's part is not known; -EINVAL.
	 */
	int (*qp_attr)(struct snt__cm_id *id, struct ibv_qp_attr *attr, int *mask_out);

	/* An unknown address has AF_UNSPEC. Listeners have no peer. */
	void (*addresses)(struct snt__cm_id *id, struct sockaddr_storage *local_out,
			  struct sockaddr_storage *peer_out);
};

extern const struct snt__cm_table snt__cm_verbs;
extern const struct snt__cm_table snt__cm_soft;

#endif
