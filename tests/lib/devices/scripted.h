/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_SCRIPTED_H
#define SENNIT_TESTS_SCRIPTED_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <sennit/ctx.h>

/*
 * The scripted device: an RDMA device whose every move a test dictates.
 *
 * A fabric holds any number of devices, whose QPs reach each other as on one
 * network. A device is adopted by a sennit context (ctx.h), or driven directly
 * with the inline verbs and its control table. It has no thread, no clock and no
 * randomness except from the seeds that a test gives: the same calls have the
 * same results. One thread uses a fabric at a time.
 *
 *	struct scripted_fabric *fabric = scripted_fabric_create(1);
 *	struct scripted_device *device = scripted_device_create(fabric, NULL);
 *	struct snt_adopted adopted = scripted_adopted(device);
 *	...post through ibv_post_send()...
 *	scripted_land(qp);                            the peer has the bytes
 *	scripted_complete(qp, IBV_WC_RETRY_EXC_ERR);  and we never learn it
 *	...ibv_poll_cq() shows what a program would see...
 *	assert(scripted_fabric_destroy(fabric) == 0);
 *
 * What is modelled: RC queue pairs with verbs' state machine, memory keys,
 * access checks to the byte, flushes, RNR, completion channels, async events,
 * SRQs. Where verbs leave a choice the device takes the one that is hardest on
 * the program:
 *
 * - Error CQEs define wr_id, status, qp_num and vendor_err. Everything else is
 *   garbage, the opcode above all: 0 as rxe and mlx5 leave it, some other valid
 *   opcode, or noise. Fields that verbs define for UD only are always garbage.
 * - A send or receive slot is free again when the CQE of its own WR or, for
 *   sends, of a later one has been polled. A queue full of finished but
 *   unsignalled WRs is full.
 * - QP numbers are the same on all devices, and a freed number is given out
 *   again at once. CQEs of a destroyed or reset QP stay in the CQ, as on rxe
 *   (scripted_device_opts::purge_cqes for the other way).
 * - Memory keys differ on all devices and a key of deregistered memory is
 *   refused although its table slot is used again. lkey and rkey differ.
 * - PSNs are compared: ends that disagree on them, also because just one of
 *   them was reset, do not hear each other.
 *
 * Functions take and return verbs objects, so that tests can name those which
 * the library made; scripted_qp_at() finds them.
 */

struct scripted_fabric;
struct scripted_device;

/* The most SGEs of a WR and GIDs of a port. */
#define SCRIPTED_SGE_MAX 32
#define SCRIPTED_GID_MAX 16

/*
 * Fabric
 */

/**
 * scripted_fabric_create - make an empty fabric
 * @seed: decides the garbage in completions
 *
 * Returns: NULL without memory.
 */
struct scripted_fabric *scripted_fabric_create(uint64_t seed);

/**
 * scripted_fabric_destroy - free a fabric, its devices and all they made
 *
 * Returns: how many objects were still alive, so that leaks are seen here rather
 * than in a leak checker: 0 is what a test should insist on.
 */
unsigned scripted_fabric_destroy(struct scripted_fabric *fabric);

/**
 * scripted_eager - let everything land and complete at post time
 *
 * WRs that find no receive wait until there is one. WRs whose peer is gone
 * complete with IBV_WC_RETRY_EXC_ERR.
 */
void scripted_eager(struct scripted_fabric *fabric, bool on);

/**
 * scripted_step - let one thing happen somewhere, as *random decides
 * @random: the state of the dice; begin with any seed
 *
 * One landing or one completion on one of the QPs that can move. FIFO within a
 * QP, adversarial across QPs. WRs whose peer is gone complete with
 * IBV_WC_RETRY_EXC_ERR; those that wait for a receive, for a peer which is not
 * connected yet or for a port do not move.
 *
 * Returns: false if nothing can move.
 */
bool scripted_step(struct scripted_fabric *fabric, uint64_t *random);

/**
 * scripted_run - step until nothing can move
 *
 * Returns: the number of steps.
 */
unsigned scripted_run(struct scripted_fabric *fabric, uint64_t seed);

/*
 * Devices
 */

/* Zero means the default that is given. Limits are enforced. */
struct scripted_device_opts {
	const char *name;		  /* scripted0, scripted1, ... */
	const struct ibv_gid_entry *gids; /* one, RoCEv2 ::ffff:10.0.0.<n> */
	unsigned gid_count;		  /* an all-zero GID is an empty slot */
	enum ibv_port_state port_state;	  /* IBV_PORT_ACTIVE */
	enum ibv_mtu mtu;		  /* IBV_MTU_4096 */
	uint8_t link_layer;		  /* IBV_LINK_LAYER_ETHERNET */
	int numa_node;			  /* 0; -1: none */
	bool no_dmabuf;			  /* else any fd that mmap() takes will do */
	bool purge_cqes;      /* destroyed and reset QPs leave no CQEs (mlx5) */
	bool round_up;	      /* queue depths are granted as powers of two */
	bool move_no_bytes;   /* no copies, for huge lengths; the checks stay */
	uint32_t message_max; /* 1 GiB */
	uint64_t mr_size_max; /* no limit */
	int qp_max;	      /* 1024 */
	int qp_wr_max;	      /* 4096 */
	int sge_max;	      /* 16; at most SCRIPTED_SGE_MAX */
	uint32_t inline_max;  /* 256 */
	int cq_max;	      /* 256 */
	int cqe_max;	      /* 65536 */
	int mr_max;	      /* 1024; at most 4096 */
	int srq_max;	      /* 64 */
	int srq_wr_max;	      /* 4096 */
	int read_max;	      /* 16 READs and atomics, in and out */
	int pkey_max;	      /* 1 */
	int vector_max;	      /* 1 completion vector */
};

/**
 * scripted_device_create - add a device, with one port and a PD, to a fabric
 * @opts: NULL for all defaults
 *
 * Ownership: the fabric's.
 * Returns: NULL without memory or fds, or for options out of range.
 */
struct scripted_device *scripted_device_create(struct scripted_fabric *fabric,
					       const struct scripted_device_opts *opts);

/**
 * scripted_adopted - the device as snt_ctx_opts::adopted takes it
 *
 * Its members live as long as the fabric.
 */
struct snt_adopted scripted_adopted(struct scripted_device *device);

/**
 * scripted_set_port_state - change the port, with the event that goes with it
 *
 * Nothing lands over a port that is not active.
 */
void scripted_set_port_state(struct scripted_device *device, enum ibv_port_state state);

/**
 * scripted_set_gid - change one GID table entry and raise IBV_EVENT_GID_CHANGE
 * @entry: NULL empties the slot. QPs that use it end in IBV_WC_LOC_QP_OP_ERR,
 *	as on rxe, and peers no longer find the device by it.
 */
void scripted_set_gid(struct scripted_device *device, unsigned index,
		      const struct ibv_gid_entry *entry);

/**
 * scripted_raise - raise any async event
 *
 * Events of a QP, CQ or SRQ hold up its destruction, once taken from the device
 * and until acknowledged.
 */
void scripted_raise(struct scripted_device *device, struct ibv_async_event event);

/*
 * The script
 *
 * A posted WR waits in its send queue. It lands: its effect happens at the peer.
 * It completes: it leaves the queue, with a CQE if it was signalled or failed.
 * Both happen in posting order, per QP.
 */

/**
 * scripted_land - let the oldest WR that has not landed take effect
 *
 * Writes and sends copy bytes, reads copy them back, atomics execute. Sends and
 * writes with immediate consume a receive of the peer, whose CQE appears.
 *
 * Returns: 0;
 *   > 0         an enum ibv_wc_status: a check failed, here or at the peer, which
 *               has already acted on it. The WR will complete with that status,
 *               and nothing behind it lands any more.
 *   -EAGAIN     no effect at all: the peer has no receive (RNR) or is not yet
 *               ready to receive
 *   -ENOTCONN   no effect: there is no such peer, it is not connected to this
 *               QP, disagrees on the PSN or is in error
 *   -ENETDOWN   no effect: one of the two ports is not active
 *   -ENOENT     every posted WR has landed.
 */
int scripted_land(struct ibv_qp *qp);

/**
 * scripted_complete - retire the oldest WR
 * @status: IBV_WC_SUCCESS lands it first, if it has not landed. Any other status
 *	takes the QP to ERR, which flushes what is left in its queues with a CQE
 *	for each WR. A WR that has landed may fail as well (the ACK was lost); one
 *	that has not landed then never will.
 *
 * Returns: 0; > 0 if success was asked for and a check failed, as
 * scripted_land(): retired with that status; -EAGAIN, -ENOTCONN, -ENETDOWN: as
 * scripted_land(), still pending; -ENOENT: no WR is pending.
 */
int scripted_complete(struct ibv_qp *qp, enum ibv_wc_status status);

/**
 * scripted_fail_recv - let the oldest receive fail, which takes the QP to ERR
 * @status: IBV_WC_LOC_PROT_ERR and the like
 *
 * The receives behind it, and all sends, are flushed.
 *
 * Returns: 0; -ENOENT if no receive is pending, or the QP cannot receive.
 */
int scripted_fail_recv(struct ibv_qp *qp, enum ibv_wc_status status);

/* A posted WR. Pointers in `wr` point into this copy. */
struct scripted_send {
	struct ibv_send_wr wr; /* next is NULL */
	struct ibv_sge sge[SCRIPTED_SGE_MAX];
	const void *inline_bytes; /* as copied at post; until the WR retires */
	uint32_t inline_length;
	bool landed;
};

struct scripted_recv {
	struct ibv_recv_wr wr;
	struct ibv_sge sge[SCRIPTED_SGE_MAX];
};

/* WRs not yet retired, receives not yet consumed. With an SRQ, its receives. */
unsigned scripted_pending(struct ibv_qp *qp);
unsigned scripted_recv_pending(struct ibv_qp *qp);

/**
 * scripted_peek, scripted_peek_recv - look at the i-th pending WR, 0 the oldest
 *
 * Returns: 0, or -ENOENT.
 */
int scripted_peek(struct ibv_qp *qp, unsigned index, struct scripted_send *send_out);
int scripted_peek_recv(struct ibv_qp *qp, unsigned index,
		       struct scripted_recv *recv_out);

/*
 * Completion queues
 */

/* Keeps all CQEs back from polls, and what arrives meanwhile from the channel. */
void scripted_hold_cq(struct ibv_cq *cq, bool hold);

/* A poll returns at most that many CQEs; 0: as many as asked for. */
void scripted_poll_limit(struct ibv_cq *cq, int limit);

/* The n-th following poll, 1 the next, returns -1. */
void scripted_fail_poll(struct ibv_cq *cq, unsigned nth);

/* CQEs lost because the CQ was full. The first raises IBV_EVENT_CQ_ERR. */
unsigned scripted_cq_overruns(struct ibv_cq *cq);

/*
 * Faults
 */

enum scripted_post_kind {
	SCRIPTED_POST_SEND,
	SCRIPTED_POST_RECV, /* post_srq_recv too, unless a QP is named */
};

enum scripted_post_mode {
	SCRIPTED_REFUSE_ALL,	      /* bad_wr: the first */
	SCRIPTED_ACCEPT_SOME,	      /* the first `accept`; bad_wr: the next one */
	SCRIPTED_QUEUE_ALL_BAD_FIRST, /* bad_wr: the first, as rxe may do */
	SCRIPTED_QUEUE_ALL_BAD_NULL,
};

struct scripted_post_fault {
	struct ibv_qp *qp; /* NULL: any of the device */
	enum scripted_post_kind kind;
	unsigned nth; /* which of the following calls, 1 the next; 0 means 1 */
	int error;    /* the errno, positive */
	enum scripted_post_mode mode;
	unsigned accept; /* a shorter chain fails at its last WR */
};

/**
 * scripted_fail_post - make one call of ibv_post_send() or ibv_post_recv() fail
 *
 * Up to 8 faults wait at a time; each counts the calls that it could apply to.
 */
void scripted_fail_post(struct scripted_device *device,
			const struct scripted_post_fault *fault);

/**
 * scripted_fail_control - make one control call fail, without any effect
 * @nth: which of the following calls, 1 the next; 0: none any more
 * @error: the errno, positive
 *
 * All functions of the table that return int count. To fail each call of some
 * operation in turn, raise nth until scripted_failed_control() is NULL.
 */
void scripted_fail_control(struct scripted_device *device, unsigned nth, int error);

/* The control function that failed since scripted_fail_control(), or NULL. */
const char *scripted_failed_control(const struct scripted_device *device);

/*
 * What happened
 */

enum scripted_kind {
	SCRIPTED_QP,
	SCRIPTED_SRQ,
	SCRIPTED_CQ,
	SCRIPTED_CHANNEL,
	SCRIPTED_MR,
	SCRIPTED_PD,
	SCRIPTED_KIND_COUNT,
};

/* How many objects of a kind exist; the PD that the device came with is none. */
unsigned scripted_live(const struct scripted_device *device, enum scripted_kind kind);

/* The i-th QP or CQ of a device in order of creation, or NULL. */
struct ibv_qp *scripted_qp_at(const struct scripted_device *device, unsigned index);
struct ibv_cq *scripted_cq_at(const struct scripted_device *device, unsigned index);

/* The completion vector that a CQ was made with. */
int scripted_cq_vector(struct ibv_cq *cq);

struct scripted_counters {
	uint64_t send_calls; /* doorbells */
	uint64_t send_wrs;   /* that were queued */
	uint64_t recv_calls;
	uint64_t recv_wrs;
	uint64_t cqes;
	uint64_t polls;		/* of the device only */
	uint64_t control_calls; /* of the device only */
};

struct scripted_counters scripted_counters(const struct scripted_device *device);
struct scripted_counters scripted_qp_counters(struct ibv_qp *qp);

/* What a correct program never causes. */
enum scripted_fault {
	SCRIPTED_FAULT_CQ_OVERRUN = 1 << 0,
	SCRIPTED_FAULT_DESTROY_BUSY = 1 << 1, /* a destroy was refused with -EBUSY */
	SCRIPTED_FAULT_ACK_EXCESS = 1 << 2,   /* more events acknowledged than taken */
	SCRIPTED_FAULT_EVENT_LOST = 1 << 3,   /* thousands of them were not read */
};

/* All that happened so far, as bits. They stay. */
unsigned scripted_faults(const struct scripted_device *device);

#endif
