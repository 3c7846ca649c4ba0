/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_QP_H
#define SENNIT_QP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/cq.h>
#include <sennit/ctx.h>
#include <sennit/mem.h>

/*
 * A virtual queue pair consists of one or more physical QPs, its lanes, on one or more
 * devices, and behaves like one ordered queue pair.
 *
 *	struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 4);
 *	struct snt_sge sge = { mem, bytes, length };
 *	struct snt_card ours, theirs;
 *	struct snt_wc wc;
 *
 *	check(snt_qp_create_with_cq(ctx, NULL, &opts, &cq, &qp));
 *	check(snt_qp_card(qp, &ours));
 *	exchange(&ours, &theirs, &token); // with the peer, by any means
 *	check(snt_qp_connect(qp, &theirs));
 *
 *	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
 *				  .flags = SNT_SEND_SIGNALED,
 *				  .sge = &sge,
 *				  .sge_count = 1,
 *				  .remote = &token,
 *				  .remote_addr = token.addr + length };
 *	check(snt_qp_post_send(qp, &wr, 1));
 *	while (!check(snt_cq_poll(cq, &wc, 1)))
 *		;
 *	show(snt_wc_text(cq, &wc)); // "QP 2: WRITE succeeded"
 *
 * The contract:
 *
 * 1. Every accepted WR retires exactly once, by success, failure or close, and is
 *    reported if and only if it was signalled or failed.
 * 2. Sends are reported in posting order; receives in posting order within their
 *    class. A WR's first error other than a flush is its status; a failed WR is
 *    reported in its turn, too.
 * 3. WRs are unordered at the peer except at ordering points: the notification of
 *    a WRITE_IMM, SEND, and atomics. An ordering point takes effect only after every
 *    earlier WR is acknowledged and visible. It is flushed if one of its own fragments
 *    failed, or if an earlier WR failed whose failure had not been reported when the
 *    ordering point was posted. A WR with SNT_SEND_FENCE is not sent until all earlier ones
 *    have retired. (One lane gives verbs' stronger order; portable code does not rely
 *    on it.)
 * 4. After a WR has retired no lane accesses its local buffer again.
 * 5. A refused WR has no effect, now or later.
 * 6. Lengths are 64 bits; zero length is legal where verbs allow it.
 * 7. Nothing a peer sends can abort the process or corrupt state.
 *
 * Receives come in two classes. Notification receives have no SGE and are
 * consumed by WRITE_IMM only; data receives are consumed by SEND only. On a
 * pass-through lane both share one queue, as in verbs.
 *
 * Lanes. The contract is the same for any number of lanes, one included, so that a
 * program does not depend on the host it runs on.
 *
 * Pass-through. With the flag SNT_QP_PASS_THROUGH, at both ends, a QP has one lane and
 * passes WRs directly to the device, by verbs' own rules instead of the contract: a WR
 * must fit one message of the port, and of each lane_depth sends at least one must be
 * signalled; send_depth is ignored; a WR that failed has no opcode, and sends no length.
 * If its device refuses a valid WR, the library cannot know whether the device has taken
 * it nevertheless: the WR then counts as accepted, the QP fails, and the WR is reported
 * like any other, at the latest when the QP is closed. wr_ids need not be unique: each WR
 * is reported with its own. The device sees the library's own numbers in place of
 * wr_ids. Shared receive queues (srq.h), memory windows (mw.h) and a single adopted QP
 * need it. A scheme other than SPRAY, which is the default, several lanes, notify_lanes
 * and SNT_QP_NOTIFY_LENGTH are refused with it.
 *
 * Schemes. The scheme determines how the peer learns that a WRITE_IMM has landed
 * completely. With SPRAY, fragments are plain writes; when all are acknowledged, an
 * empty write-with-immediate on a lane of its own carries the 32 bits. The receiver
 * does not know the length unless it requested it by SNT_QP_NOTIFY_LENGTH: then that
 * write is not empty but puts the length into memory named by the receiver's card. The
 * length is not verified: a hostile peer can send any number, with no other effect.
 * A WRITE_IMM of at most express_max bytes needs none of this: it travels with its
 * notification, as one write with immediate on a notify lane, and takes as long as on a
 * single QP. It is sent at once if everything before it is acknowledged or went to the
 * notify lanes, too; while something is under way on data lanes it waits for that, as
 * other notifications do. A remote key or address that the peer's device refuses ends
 * the lane that carried it: in an express message this is a notify lane, all of which end
 * together, so that every later WRITE_IMM fails, where a longer message would have cost
 * one data lane. Express messages, and notifications, are sent before earlier ones on the
 * notify lanes are acknowledged: if only an acknowledgement is lost, the peer may be
 * notified of them although they are reported here as failed or flushed. Atomics and SENDs
 * are never sent so early.
 * With DQPLB, fragments carry sequence numbers in their immediates, so that the sender
 * waits for no acknowledgement, and the receiver adds up the length; an immediate other
 * than 0 costs one more empty write. If only the acknowledgement of a fragment was
 * lost, the fragment has landed, so the peer may be notified of a message that failed
 * at the sender; the whole QP then fails as well.
 *
 * Failover. With SNT_QP_FAILOVER at both ends, a lane that fails does not fail WRs. The QP
 * is suspended: both ends stop all lanes, make certain that nothing which is under way can
 * take effect any more, tell each other what they received, and go on with the lanes that
 * work. WRs that are not known to have arrived are sent again. failover.h has the calls.
 * While suspended a QP accepts WRs and receives as usual; they wait. The contract then says:
 *
 * - SEND and WRITE_IMM are received exactly once, in order. Before a WRITE_IMM is reported
 *   at the peer its bytes may be written more than once, always the same bytes; the same
 *   holds for every WRITE until it retires or a later SEND or WRITE_IMM is reported at
 *   the peer. A peer that reuses memory when it is notified never finds it written again. One
 *   that watches memory instead may: then use SNT_QP_STRICT, with which a plain WRITE that
 *   is in doubt fails with SNT_WC_INDETERMINATE.
 * - A READ may read more than once; it succeeds when all its bytes are there.
 * - An atomic is never sent twice. If it is in doubt it fails with SNT_WC_INDETERMINATE:
 *   it may have been executed, but will not be any more, and its result is lost. Read the
 *   word to find out. Atomics stay on the device of the peer that data lane 0 leads to, since
 *   those of different devices are not atomic with each other; without a lane to it they
 *   fail, flushed, without having been executed.
 * - A WR that fails by its own fault (a local or remote access error, a receive that is too
 *   short or missing) fails as it would without failover, and is not sent again.
 * - Ordering points behind a WR that failed or is in doubt are flushed, as contract 3 says.
 * - A device must be able to release what it was given: one that crashed, so that its
 *   flushes never come, leaves the QP suspended. Close it then.
 * - When the QP is closed or breaks while it is suspended, WRs that are in doubt end as
 *   flushed: they may have taken effect.
 *
 * It needs SPRAY, a control table of every device, and CQs that are polled (no ops);
 * SNT_QP_PASS_THROUGH, SNT_QP_NOTIFY_LENGTH and adopted QPs are refused with it. CQs must
 * have room for recv_depth receives of every data lane, as any of them may come to take the
 * messages.
 *
 * Thread: loop, or the owner of a CQ without one, for every call here.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_qp;
struct ibv_wc;
struct snt_card;
struct snt_srq;

/*
 * Limits of snt_qp_opts; a device may have lower ones, which the error of
 * snt_qp_create() names. The maximum number of notify lanes is SNT_DEVICES_MAX (api.h).
 */

/* Maximum number of lanes of one QP, including those for notifications and messages. */
#define SNT_LANES_MAX	       160
#define SNT_DATA_LANES_MAX     128
#define SNT_LANE_DEPTH_MAX     32768 /* at least 1; 2 in DQPLB */
#define SNT_SEND_DEPTH_MAX     (1 << 20)
#define SNT_RECV_DEPTH_MAX     32768
#define SNT_SGES_MAX	       32 /* of a send, a receive, or a receive of an SRQ */
#define SNT_INLINE_MAX	       4096
#define SNT_FRAGMENT_SIZE_MIN  64
#define SNT_FRAGMENT_SIZE_MAX  (UINT64_C(1) << 31)
#define SNT_FRAGMENT_SIZE_UNIT 64 /* fragment sizes are multiples of this */
#define SNT_EXPRESS_MAX	       16384
#define SNT_EXPRESS_DEFAULT    4096
#define SNT_EXPRESS_OFF	       UINT32_MAX
#define SNT_MTU_MIN	       256
#define SNT_MTU_MAX	       4096

enum snt_scheme {
	SNT_SCHEME_DEFAULT = 0, /* SPRAY */
	SNT_SCHEME_SPRAY,
	SNT_SCHEME_DQPLB,
};

/* Which lane gets the next fragment. */
enum snt_balance {
	SNT_BALANCE_DEFAULT = 0, /* round robin */
	SNT_BALANCE_ROUND_ROBIN, /* in turn, or by weights */
	/* The lane expected to finish sending the fragment first, judging by past
	 * completions. A slow or shared lane then does not hold up the others. Reads
	 * the context's clock for each physical completion, and when an idle lane gets
	 * work. */
	SNT_BALANCE_BY_TIME,
};

enum snt_qp_flags {
	/* One lane, by verbs' own rules; see above. Required at both ends, or at none. */
	SNT_QP_PASS_THROUGH = 1 << 0,
	/* SPRAY: this end's notification receives report the length. Registers memory
	 * when the QP is made, 8 bytes for each receive or a little more. The peer
	 * needs no flag; with an inline_max below 8 it registers memory, too, when it
	 * connects. */
	SNT_QP_NOTIFY_LENGTH = 1 << 1,
	/* Failed lanes are survived; see above. On if both ends ask for it: with a peer
	 * that does not, it is off (snt_qp_info.failover). A library without failover
	 * refuses the card of a QP that asks for it. */
	SNT_QP_FAILOVER = 1 << 2,
	/* With SNT_QP_FAILOVER: a plain WRITE that is not known to have arrived is not sent
	 * again, but fails with SNT_WC_INDETERMINATE. Each end decides for its own WRs. */
	SNT_QP_STRICT = 1 << 3,
};

struct snt_qp_opts {
	size_t size;
	struct snt_cq *cq;	/* required */
	struct snt_cq *recv_cq; /* NULL: the same */
	enum snt_scheme scheme;
	uint32_t flags;	  /* enum snt_qp_flags */
	uint32_t lanes;	  /* data lanes in total, spread over the devices; 0: 1 each,
			   * or with SNT_QP_PASS_THROUGH 1 on the first of them */
	uint32_t devices; /* bit i: use device i; 0: all */
	/* SPRAY: lanes for notifications, one for each device of the peer that has data
	 * lanes; where the ends have different numbers of devices both specify the
	 * larger. 0: one for each device of this end. Other schemes have none and
	 * ignore it. */
	uint32_t notify_lanes;
	uint32_t lane_depth;   /* fragments in flight on one lane; 0: 128 */
	uint32_t send_depth;   /* WRs accepted and not yet reported; 0: 256. Not of a
				 * pass-through lane, where lane_depth counts */
	uint32_t recv_depth;   /* receives of each class; 0: 128 */
	uint32_t send_sge_max; /* in one WR; 0: 1 */
	uint32_t recv_sge_max; /* in one data receive; 0: 1 */
	/* Maximum bytes with SNT_SEND_INLINE; 0: none. Soft devices take up to 512; other
	 * devices do not report their maximum. */
	uint32_t inline_max;
	uint32_t mtu;		/* bytes, a power of two; 0: the ports' minimum */
	uint64_t fragment_size; /* bytes; 0: 1 MiB */
	uint8_t traffic_class;	/* of RoCE and InfiniBand global routing */
	uint8_t service_level;
	uint8_t hop_limit; /* 0: 64 */
	/* The partition: an index in each port's table of P_Keys, the same on all
	 * devices. RoCE has only the default partition, 0. Adopted QPs get it when they
	 * are reset. */
	uint16_t pkey_index;
	/* 4.096 us << timeout; 0: 14, or for a connection as detect_ns (conn.h)
	 * requires */
	uint8_t timeout;
	uint8_t retry_count;	 /* 0: 7 */
	uint8_t rnr_retry_count; /* 0: 7, which means without limit */
	uint8_t rnr_timer;	 /* verbs' code; 0: 12, which is 0.64 ms */
	uint8_t read_depth; /* READs and atomics in flight on a lane; 0: 16 or less */
	/* One for each data lane that is made, at most 20 bits, given to the device as
	 * the flow label, by which routers and bonds spread lanes. The extra lanes use
	 * the same labels, beginning with the first. NULL: derived from the lane's
	 * number. */
	const uint32_t *flow_labels;
	enum snt_balance balance;
	/* One for each data lane that is made, even if the peer has fewer, 1 to 65535:
	 * the lanes' shares in round robin, or with SNT_BALANCE_BY_TIME their initial speeds
	 * relative to each other. NULL: all equal. Copied. */
	const uint16_t *weights;
	/* The program's own physical QPs instead of created ones: data lanes first,
	 * then the extra lanes of the scheme (SPRAY: notify lanes, one for each device
	 * is usual; DQPLB: one for messages), each on the device of the same position.
	 * They must report to a physical CQ of the virtual one, have room for 2 more
	 * than lane_depth sends and recv_depth receives, and must not have sq_sig_all.
	 * Completions of WRs that the program posted to them itself are strays (cq.h). */
	struct ibv_qp *const *adopted;
	const unsigned *adopted_devices;
	size_t adopted_count;
	/* Device of each created lane, including the extra lanes; lanes and, with
	 * SPRAY, notify_lanes say how many there are. NULL: devices take turns. */
	const unsigned *lane_devices;
	/* Shared receive queue (srq.h) to which receives are posted instead. Needs
	 * SNT_QP_PASS_THROUGH; the lane is on the device of the SRQ; a NULL recv_cq means
	 * that of the SRQ, and recv_depth and recv_sge_max are ignored. */
	struct snt_srq *srq;
	/* SPRAY: a WRITE_IMM of at most so many bytes, and of at most a fragment, travels
	 * with its notification, see above. 0: 4096, or with adopted QPs none;
	 * SNT_EXPRESS_OFF: none does. If it is set with adopted QPs, the notify QPs take
	 * as many SGEs and inline bytes as the data QPs. */
	uint32_t express_max;
};

/* Numbered as verbs number them. */
enum snt_send_flags {
	SNT_SEND_FENCE = 1 << 0,
	SNT_SEND_SIGNALED = 1 << 1,
	SNT_SEND_SOLICITED = 1 << 2,
	/* Posting copies the bytes: the buffers, which need not be registered, may be
	 * changed as soon as the call has returned. */
	SNT_SEND_INLINE = 1 << 3,
};

/* Local memory of a WR: an address range inside a registered memory. */
struct snt_sge {
	const struct snt_mem *mem; /* may be NULL for SNT_SEND_INLINE */
	void *addr;
	uint64_t length;
};

struct snt_send_wr {
	uint64_t wr_id;
	uint8_t opcode; /* enum snt_opcode, SNT_OP_WRITE to SNT_OP_FETCH_ADD */
	uint8_t flags;	/* enum snt_send_flags */
	uint16_t sge_count;
	uint32_t imm; /* host order; of WRITE_IMM and SEND_IMM */
	const struct snt_sge *sge;
	/* The peer's memory; not used by SEND, but required even by an empty write. The
	 * token is copied, and its range and rights are checked. */
	const struct snt_token *remote;
	uint64_t remote_addr;
	uint64_t compare_add; /* of atomics */
	uint64_t swap;
};

struct snt_recv_wr {
	uint64_t wr_id;
	const struct snt_sge *sge;
	uint32_t sge_count; /* 0: a notification receive */
};

/**
 * snt_qp_create - make a virtual QP and its lanes, not yet connected
 *
 * Returns: 0, or, with nothing left but physical CQs that were added to the virtual
 * one,
 *   -EINVAL    an option out of range or beyond a device's limit, which the text
 *              names with both numbers where the device tells its own; adopted QPs
 *              that are too small, of another device or on another CQ
 *   -EOPNOTSUPP  lanes must be created, or memory registered for
 *              SNT_QP_NOTIFY_LENGTH, but a device has no control table
 *   -ENOSPC    the virtual CQ cannot hold the worst case of this QP; all 2^24 - 1
 *              numbers are in use
 *   -ECHILD    after a fork
 *   -ENOMEM, or the errno of the device.
 */
SNT_API int snt_qp_create(struct snt_ctx *ctx, const struct snt_qp_opts *opts,
			  struct snt_qp **qp_out);

/**
 * snt_qp_create_with_cq - a virtual CQ and a virtual QP in one call
 * @opts: its cq must be NULL
 *
 * Returns: as snt_cq_create() and snt_qp_create().
 */
SNT_API int snt_qp_create_with_cq(struct snt_ctx *ctx,
				  const struct snt_cq_opts *cq_opts,
				  const struct snt_qp_opts *opts,
				  struct snt_cq **cq_out, struct snt_qp **qp_out);

/**
 * snt_qp_post_send - post WRs
 *
 * WRs are accepted in order until one is refused, which has no effect. Later failures
 * of accepted WRs are reported by completions.
 *
 * Returns: how many were taken, at least 1; or, if the first was refused,
 *   -EAGAIN    send_depth is used up: poll
 *   -EINVAL    malformed: opcode, flags, SGE count, alignment of an atomic, a
 *              length that does not fit
 *   -ERANGE    outside a memory or token
 *   -EACCES    the memory or the token does not grant the access
 *   -EMSGSIZE  longer than one message, on a QP or for an opcode limited to one message
 *   -ENOTCONN  not connected
 *   -ESHUTDOWN closing, closed, or no lane left
 */
SNT_API int snt_qp_post_send(struct snt_qp *qp, const struct snt_send_wr *wr,
			     unsigned count);

/**
 * snt_qp_post_recv - post receives
 *
 * Returns: as snt_qp_post_send(); -EAGAIN if recv_depth of that class is used up; the
 * errno of a device that refuses a receive on a pass-through lane before it is
 * connected, after which all posted receives are dropped or, without a control table,
 * no more can be posted (-ESHUTDOWN).
 */
SNT_API int snt_qp_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr,
			     unsigned count);

/**
 * snt_qp_complete - process completions that the program polled itself
 * @device: index of the device they came from
 * @physical: @count of them, from a physical CQ of this QP, in the order polled
 * @wc: receives up to @max virtual completions of this QP
 *
 * With a count of 0 it returns completions that did not fit before. On a pass-through
 * lane nothing is kept, so @max must not be less than @count.
 *
 * Returns: how many were written to @wc; -EINVAL, with nothing changed, if one of
 * them belongs to another QP, or the QP has an SRQ or ops. snt_cq_complete() (cq.h) takes
 * those of several QPs.
 */
SNT_API int snt_qp_complete(struct snt_qp *qp, unsigned device,
			    const struct ibv_wc *physical, unsigned count,
			    struct snt_wc *wc, int max);

/**
 * snt_qp_close - end traffic
 *
 * All outstanding WRs are flushed and reported through polling, followed by one
 * completion SNT_OP_CLOSED, whose wr_id is @wr_id. It comes on snt_qp_opts.cq, after the
 * last send, and only after all receives have been polled: if they are reported to
 * another CQ (recv_cq), poll both. Closing is not graceful: only WRs reported as
 * successful before are certain to have reached the peer. The program itself moves
 * lanes on a device without a control table to ERR, after this call.
 *
 * Returns: 0; -EALREADY if it was called before; -ENOTCONN if there is nothing to
 * close; the errno of the device, after which it can be called again.
 */
SNT_API int snt_qp_close(struct snt_qp *qp, uint64_t wr_id);

/**
 * snt_qp_destroy - free a virtual QP and its lanes
 *
 * NULL is legal and does nothing.
 *
 * If a device is gone, so that closing or polling fails, the QP may nevertheless be
 * destroyed after snt_qp_close(): WRs not yet reported never will be.
 *
 * Returns: 0; -EBUSY if it was connected and SNT_OP_CLOSED has not been polled; the
 * errno of a device that refused, after which it can only be destroyed again.
 */
SNT_API int snt_qp_destroy(struct snt_qp *qp);

/**
 * snt_qp_reset - bring a closed QP back, as if it had just been made
 *
 * Its lanes keep their QP numbers; its card has a new generation and new PSNs.
 * Statistics continue. A QP that was never connected may be reset too, and drops the
 * receives that were posted to it.
 *
 * Returns: 0; -EBUSY if it was connected and SNT_OP_CLOSED has not been polled;
 * -EOPNOTSUPP on a device without a control table; the errno of the device, after
 * which it can be reset again or destroyed.
 */
SNT_API int snt_qp_reset(struct snt_qp *qp);

/**
 * snt_qp_modify - change options
 * @change: members that are not 0 are applied
 *
 * balance, weights, express_max and rnr_timer can be changed at any time; mtu, fragment_size,
 * traffic_class, service_level, hop_limit, timeout, retry_count, rnr_retry_count and
 * read_depth before connecting, and before the card is made; nothing else.
 *
 * Returns: 0, or, with nothing changed but rnr_timer on some lanes,
 *   -EINVAL   out of range, beyond a device's limit, or not changeable
 *   -EISCONN  not changeable while connected
 *   or the errno of the device.
 */
SNT_API int snt_qp_modify(struct snt_qp *qp, const struct snt_qp_opts *change);

enum snt_qp_state {
	SNT_QP_UNCONNECTED,
	SNT_QP_CONNECTED,
	SNT_QP_BROKEN, /* no lane left, or the remaining ones cannot keep the contract */
	SNT_QP_CLOSING,
	SNT_QP_CLOSED,
	SNT_QP_SUSPENDED, /* connected, between two lives of its lanes (failover.h) */
};

/* What ended a lane or a QP: the first error that was not a flush. */
enum snt_cause {
	SNT_CAUSE_NONE,	   /* none, or only flushes so far */
	SNT_CAUSE_STATUS,  /* a completion, of a send or a receive, had an error */
	SNT_CAUSE_REFUSED, /* the device refused a valid post */
	SNT_CAUSE_PEER,	   /* the peer violated the scheme's protocol */
	SNT_CAUSE_ENDED,   /* the peer gave up a QP with failover */
};

struct snt_qp_info {
	size_t size;
	uint32_t num;
	enum snt_qp_state state;
	enum snt_scheme scheme;
	enum snt_balance balance;
	int32_t pass_through;
	uint32_t lanes; /* data lanes in use */
	uint32_t lanes_alive;
	uint32_t lane_count; /* including the extra lanes and unused ones */
	/* Agreed on with the peer, once connected. */
	uint64_t fragment_size;
	uint32_t message_max; /* maximum bytes in one message */
	uint32_t mtu;
	uint32_t window; /* DQPLB: of the peer */
	uint64_t generation;
	/* Now. */
	uint32_t sends;		/* accepted and not yet reported */
	uint32_t sends_waiting; /* of these, not yet completely on lanes */
	uint32_t under_way;	/* fragments */
	uint32_t recvs;
	uint32_t recv_notifies;
	/* Since it was made, of all lanes. */
	uint64_t fragments;
	uint64_t bytes; /* not of a pass-through lane */
	uint64_t doorbells;
	uint64_t completions;
	uint64_t errors;
	/* The first error of any lane since the QP was made or reset, even if no
	 * completion of the program reports it: DQPLB posts receives of its own. It is
	 * logged as well, at SNT_LOG_WARN, as is the end of each lane and of the QP. */
	enum snt_cause cause;
	uint32_t cause_status;	   /* enum snt_status; SNT_WC_GENERAL_ERR without one */
	uint32_t cause_vendor_err; /* of SNT_CAUSE_REFUSED, the errno or 0 */
	uint32_t cause_lane;
	uint32_t cause_device;
	uint32_t express_max; /* bytes, while connected; 0: none */
	/* Of failover (failover.h). */
	int32_t failover;  /* both ends asked for it */
	uint32_t life;	   /* of its lanes, from 1 */
	uint32_t suspends; /* how often lanes were stopped since the QP was made */
	uint64_t resent_fragments;
	uint64_t resent_bytes;
	uint64_t indeterminate; /* WRs that ended SNT_WC_INDETERMINATE */
	uint64_t suspended_ns;	/* in all */
};

/**
 * snt_qp_query - get state, settings and statistics of a QP
 *
 * Returns: 0; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_qp_query(const struct snt_qp *qp, struct snt_qp_info *info_out);

/**
 * snt_qp_num, snt_qp_lane_count, snt_qp_scheme - get basic properties of a QP
 *
 * The number is unique in the process. snt_qp_lane_count() counts the data lanes in use.
 */
SNT_API uint32_t snt_qp_num(const struct snt_qp *qp);
SNT_API unsigned snt_qp_lane_count(const struct snt_qp *qp);
SNT_API enum snt_scheme snt_qp_scheme(const struct snt_qp *qp);

struct snt_lane_info {
	size_t size;
	struct ibv_qp *qp;
	uint32_t device;
	uint32_t remote_device;
	uint32_t depth;
	uint32_t under_way; /* fragments */
	int32_t alive;
	uint64_t fragments; /* posted so far */
	uint64_t bytes;
	uint64_t doorbells;
	uint64_t completions;
	uint64_t errors;
	enum snt_cause cause; /* its own first error, as in struct snt_qp_info */
	uint32_t cause_status;
	uint32_t cause_vendor_err;
	/* What carries the packets that this end sends now: a soft device continues
	 * with UDP if the memory it shares with its peer is gone. */
	enum snt_path path;
	/* The following are 0 unless the device is a soft one (device.h has them for
	 * all lanes of a device). Since the lane was connected: */
	uint64_t resends;    /* packets that were sent again */
	uint64_t timeouts;   /* the peer was silent for longer than it usually is */
	uint64_t duplicates; /* requests that came again */
	uint64_t
		out_of_order; /* requests that came too early, so that one is missing */
	uint64_t round_trip_ns; /* mean of late; 0: not measured yet */
	uint32_t window;	/* bytes that may be in flight */
	/* Of failover. */
	uint32_t lives;		   /* since the QP was made */
	enum snt_cause last_cause; /* of the end of the last life */
	uint32_t last_status;
	int32_t left_out; /* until snt_qp_suspend() */
};

/**
 * snt_qp_query_lane - get state and statistics of one lane
 * @lane: data lanes from 0, then the extra lanes of the scheme
 *
 * Returns: 0; -ENOENT past the last; -EINVAL if info_out->size is too small.
 */
SNT_API int snt_qp_query_lane(const struct snt_qp *qp, unsigned lane,
			      struct snt_lane_info *info_out);

#ifdef __cplusplus
}
#endif

#endif
