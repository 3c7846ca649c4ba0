/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CQ_H
#define SENNIT_CQ_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>
#include <sennit/ctx.h>

/*
 * A virtual completion queue, over one or many physical ones. Any number of
 * virtual QPs (qp.h), of one lane or of many, report to it.
 *
 *	struct snt_cq_opts opts = SNT_INIT(opts, .depth = 1024);
 *	struct snt_wc wc[16];
 *	int count, left;
 *
 *	check(snt_cq_create(ctx, &opts, &cq));
 *	left = post_writes(cq); // to QPs with snt_qp_opts.cq = cq
 *	while (left > 0) {
 *		count = check(snt_cq_poll(cq, wc, 16));
 *		for (int i = 0; i < count; i++)
 *			if (wc[i].status != SNT_WC_SUCCESS)
 *				show(snt_wc_text(cq, &wc[i]));
 *		left -= count;
 *	}
 *
 * Each virtual QP reserves room for the worst case of all its lanes when it is created,
 * so that a physical CQ can never overrun; if there is not enough room, another
 * physical CQ is added on that device, up to the limit in the options.
 *
 * Polling also makes progress: it retires fragments, sends WRs that waited for a free
 * lane, and replenishes receives. No completion is ever dropped: those that do not fit
 * the caller's array come with the next poll.
 *
 * Thread: loop, for every call here, that of the CQ; for a CQ without a loop, owner:
 * the one thread that uses the CQ and its QPs.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_cq;
struct ibv_cq;
struct ibv_wc;
struct snt_cq;
struct snt_loop;
struct snt_qp;

enum snt_opcode {
	SNT_OP_WRITE = 1,
	SNT_OP_WRITE_IMM,
	SNT_OP_READ,
	SNT_OP_SEND,
	SNT_OP_SEND_IMM,
	SNT_OP_CMP_SWAP,
	SNT_OP_FETCH_ADD,
	SNT_OP_RECV,	    /* a data receive, consumed by a SEND */
	SNT_OP_RECV_NOTIFY, /* a notification receive, consumed by a WRITE_IMM */
	/* Belongs to no WR: the last completion of a QP, after snt_qp_close(), on the
	 * CQ of its sends (snt_qp_opts.cq). */
	SNT_OP_CLOSED,
	SNT_OP_BIND,	   /* of a memory window (mw.h) */
	SNT_OP_INVALIDATE, /* the same */
	/* Belongs to no WR, and its wr_id is 0: the state of a QP with failover has
	 * changed, and its peer is to be told (failover.h). On snt_qp_opts.cq. */
	SNT_OP_RECEIPT,
};

/* Numbered as verbs number ibv_wc_status, up to 63. */
enum snt_status {
	SNT_WC_SUCCESS = 0,
	SNT_WC_LOC_LEN_ERR = 1,
	SNT_WC_LOC_QP_OP_ERR = 2,
	SNT_WC_LOC_PROT_ERR = 4,
	SNT_WC_FLUSHED = 5,
	SNT_WC_MW_BIND_ERR = 6,
	SNT_WC_BAD_RESP_ERR = 7,
	SNT_WC_LOC_ACCESS_ERR = 8,
	SNT_WC_REM_INV_REQ_ERR = 9,
	SNT_WC_REM_ACCESS_ERR = 10,
	SNT_WC_REM_OP_ERR = 11,
	SNT_WC_RETRY_EXC_ERR = 12,
	SNT_WC_RNR_RETRY_EXC_ERR = 13,
	SNT_WC_FATAL_ERR = 19,
	SNT_WC_GENERAL_ERR = 21,
	/* Of sennit's own: the WR may have taken effect, but will not any more. Only of
	 * QPs with failover; qp.h says of which WRs. */
	SNT_WC_INDETERMINATE = 64,
};

enum snt_wc_flags {
	SNT_WC_WITH_IMM = 1 << 0,
	/* A notification that does not carry the length of the write. */
	SNT_WC_LENGTH_UNKNOWN = 1 << 1,
	/* The sender invalidated a memory window, whose key is in `imm` (mw.h). */
	SNT_WC_WITH_INV = 1 << 2,
};

struct snt_wc {
	uint64_t wr_id;
	/* Of the whole WR, but 0 for sends of a pass-through lane; of receives, the
	 * bytes received. */
	uint64_t length;
	uint32_t qp_num;     /* the virtual QP's number */
	uint32_t imm;	     /* host order, if SNT_WC_WITH_IMM */
	uint32_t vendor_err; /* on failure; lane and device tell where */
	uint16_t lane;
	uint8_t device;
	uint8_t flags; /* enum snt_wc_flags */
	/* enum snt_opcode. On a pass-through lane (qp.h) as verbs report it: WRITE for
	 * WRITE_IMM, SEND for SEND_IMM, and 0 on failure. */
	uint8_t opcode;
	uint8_t status; /* enum snt_status */
	/* For SNT_WC_FLUSHED, the status of the error that caused the flush: the first
	 * error of that lane or, if it has had none, of the QP; vendor_err, lane and
	 * device then describe that error as well. 0: no error is known so far, as
	 * after snt_qp_close(). A post that the device refused, and a protocol
	 * violation by the peer, count as SNT_WC_GENERAL_ERR; snt_qp_query() distinguishes
	 * them. */
	uint8_t cause;
};

/* Completions are delivered to callbacks of ops (op.h) instead of being polled. */
enum snt_cq_ops {
	SNT_CQ_OPS_NONE = 0,
	SNT_CQ_OPS_EVENTS, /* with events */
	/* Without events, which not every device has: for programs that never sleep and
	 * call snt_loop_poll() continuously. Completions do not make the fd readable,
	 * and waits do not sleep while the loop has such a CQ. */
	SNT_CQ_OPS_POLLED,
};

/* Maximum number of physical CQs on one device for a virtual CQ. */
#define SNT_CQ_PER_DEVICE_MAX 4096

struct snt_cq_opts {
	size_t size;
	uint32_t depth;	     /* of each physical CQ; 0: 4096, or the device's limit */
	uint32_t per_device; /* physical CQs on one device; 0: 16 */
	/* Physical CQs of the program's own, one for each device of the context, in
	 * index order; NULL: they are created as needed. Adopted CQs never grow. */
	struct ibv_cq *const *adopted;
	/* The CQ's loop (loop.h), whose fd becomes readable when there is something to
	 * poll; NULL: no loop, the CQ is only polled. Adopted CQs can have one only
	 * with SNT_CQ_OPS_POLLED. */
	struct snt_loop *loop;
	uint32_t ops; /* enum snt_cq_ops; they need a loop */
	/* Completion vector: which of a device's interrupts announces completions, below
	 * snt_device_info.comp_vector_count of every device. Programs with a loop on each
	 * processor give each loop's CQ a vector of its own. Not of adopted CQs. */
	uint32_t comp_vector;
};

/**
 * snt_cq_create - make a virtual completion queue
 * @opts: NULL for all defaults
 *
 * Ownership: adopted CQs stay the program's and must outlive it.
 * Returns: 0; -EINVAL for a depth or completion vector beyond a device's limit, which the
 * text names, or for options that are out of range or contradict each other; -ECHILD
 * after a fork; -ENOMEM; the errno of the device.
 */
SNT_API int snt_cq_create(struct snt_ctx *ctx, const struct snt_cq_opts *opts,
			  struct snt_cq **cq_out);

/**
 * snt_cq_destroy - destroy a virtual completion queue
 *
 * NULL is legal and does nothing.
 *
 * Returns: 0; -EBUSY while a virtual QP reports to it; the errno of the device.
 */
SNT_API int snt_cq_destroy(struct snt_cq *cq);

/**
 * snt_cq_complete - process completions that the program polled itself, of any QPs
 * @device: index of the device they came from
 * @physical: @count of them, in the order polled, from a physical CQ of this one
 * @wc: receives up to @max virtual completions
 *
 * As snt_qp_complete() (qp.h), of all QPs that report to the CQ, in one call. Completions of
 * no WR of theirs are strays, as in polling. With a count of 0 it returns completions that
 * did not fit before. On pass-through lanes nothing is kept, so @max must not be less than
 * the number of @physical of such lanes. The receives of a QP that has a recv_cq of its own
 * are returned by a call for that CQ.
 *
 * Returns: how many were written to @wc; -EINVAL, with nothing changed, if there is too
 * little room for pass-through lanes, or if the CQ has ops or shared receive queues.
 */
SNT_API int snt_cq_complete(struct snt_cq *cq, unsigned device,
			    const struct ibv_wc *physical, unsigned count,
			    struct snt_wc *wc, int max);

/**
 * snt_cq_find_qp - find the virtual QP that a physical one is a lane of
 * @device: index of the physical QP's device
 * @qp_num: of the physical QP, as in struct ibv_wc
 *
 * Returns: NULL if no QP that reports to the CQ has that lane.
 */
SNT_API struct snt_qp *snt_cq_find_qp(const struct snt_cq *cq, unsigned device,
				      uint32_t qp_num);

/**
 * snt_cq_poll - take up to @max completions
 *
 * Returns: how many were written to @wc, 0 if there is nothing to report now; -EIO if a
 * physical CQ, which the text names, can no longer be polled; -EINVAL if the CQ has
 * ops.
 */
SNT_API int snt_cq_poll(struct snt_cq *cq, struct snt_wc *wc, int max);

/*
 * Inlined, polling an empty CQ costs hardly more than with verbs. The structure below
 * is the beginning of every CQ, for the inline function only. SNT_NO_INLINE, if defined
 * before the include, makes programs call the function in the library instead.
 */
struct snt__ready;
struct snt__cq_front {
	/* Points to the device's poll function, of the only physical CQ; NULL if there
	 * is more to look at. */
	int (**poll)(struct ibv_cq *cq, int max, struct ibv_wc *batch);
	struct ibv_cq *only;
	struct snt__ready *ready; /* first QP that has something to report */
	struct ibv_wc *batch;
	int batch_max;
	int (*take)(struct snt_cq *cq, int count, struct snt_wc *wc, int max);
	int (*poll_all)(struct snt_cq *cq, struct snt_wc *wc, int max);
};

#if defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(SNT_NO_INLINE)
extern __inline __attribute__((gnu_inline, always_inline)) int snt_cq_poll(
	struct snt_cq *cq, struct snt_wc *wc, int max)
{
	const struct snt__cq_front *front = (const struct snt__cq_front *)cq;
	int count;

	if (__builtin_expect(!front->poll || front->ready || max <= 0, 0))
		return front->poll_all(cq, wc, max);
	count = (*front->poll)(front->only,
			       max < front->batch_max ? max : front->batch_max,
			       front->batch);
	return __builtin_expect(!count, 1) ? 0 : front->take(cq, count, wc, max);
}
#endif

/**
 * snt_cq_poll_one - take one completion, if there is one
 *
 * Returns: 1, 0, or as snt_cq_poll().
 */
SNT_API int snt_cq_poll_one(struct snt_cq *cq, struct snt_wc *wc);

/**
 * snt_cq_poll_each - pass up to @max completions to a function, one by one
 *
 * The function may post to QPs and close them. It must not poll, nor reset or destroy a
 * QP or this CQ; the program does so after the call, even for a QP whose SNT_OP_CLOSED the
 * function has received.
 *
 * Returns: as snt_cq_poll().
 */
SNT_API int snt_cq_poll_each(struct snt_cq *cq, int max,
			     void (*each)(void *arg, const struct snt_wc *wc),
			     void *arg);

/**
 * snt_cq_poll_index - as snt_cq_poll(), but look at one physical CQ only
 * @index: 0 to snt_cq_count() - 1, in order of creation
 *
 * For programs that serve one device before others. WRs that finished without a
 * completion of that physical CQ are reported too.
 *
 * Returns: as snt_cq_poll(); -EINVAL if there is no such CQ.
 */
SNT_API int snt_cq_poll_index(struct snt_cq *cq, unsigned index, struct snt_wc *wc,
			      int max);

/**
 * snt_cq_count - get the current number of physical CQs
 */
SNT_API unsigned snt_cq_count(const struct snt_cq *cq);

/**
 * snt_cq_physical - get a physical CQ and its device
 * @device_out: may be NULL
 *
 * For programs that poll the physical CQs themselves and hand the completions over with
 * snt_qp_complete(). Such programs also arm the CQs themselves: snt_loop_arm() may take
 * completions that they would have polled.
 *
 * Returns: NULL if there is no such index.
 */
SNT_API struct ibv_cq *snt_cq_physical(const struct snt_cq *cq, unsigned index,
				       unsigned *device_out);

/**
 * snt_cq_num - get the number of a virtual CQ
 *
 * From 1, in order of creation, and unique in the process. Error texts and logs have it.
 */
SNT_API uint32_t snt_cq_num(const struct snt_cq *cq);

/**
 * snt_cq_stray_count - count completions that belonged to no virtual QP
 *
 * Such completions are of QPs that have been destroyed, or of QPs that the program
 * itself uses on the same physical CQ.
 *
 * Returns: the number since the CQ was made.
 */
SNT_API uint64_t snt_cq_stray_count(const struct snt_cq *cq);

/**
 * snt_cq_set_stray_handler - set the function that gets completions of no virtual QP
 * @stray: NULL: none. It must not poll, nor destroy anything.
 */
SNT_API void snt_cq_set_stray_handler(struct snt_cq *cq,
				      void (*stray)(void *arg, unsigned device,
						    const struct ibv_wc *wc),
				      void *arg);

/**
 * snt_wc_text - a completion in words
 * @cq: where it was polled
 *
 * One sentence with the QP, the operation, the status, and, for a failure, the lane
 * with its device and the peer's address, and the remedy. If the QP has since been
 * destroyed, the text gives numbers instead of names.
 *
 *	QP 17: WRITE failed on lane 2 (mlx5_1 to 192.168.78.2) with RETRY_EXC_ERR (status 12,
 *	vendor error 0x81): the peer did not answer: check that its process runs, then ...
 *
 * Ownership: the text belongs to the library and to the calling thread; it stays until the
 * next snt_wc_text() or snt_op_text() in the same thread.
 * Returns: a string, never NULL.
 */
SNT_API const char *snt_wc_text(const struct snt_cq *cq, const struct snt_wc *wc);

/**
 * snt_status_text, snt_status_name, snt_status_help - a status in words
 *
 * The text is that of verbs ("transport retry counter exceeded"), the name that of enum
 * snt_status without its prefix ("RETRY_EXC_ERR"), the help what it means and what to do.
 *
 * Thread: any. Returns: a static string; for numbers that are not in enum snt_status, a
 * text that says so, and NULL for name and help.
 */
SNT_API const char *snt_status_text(unsigned status);
SNT_API const char *snt_status_name(unsigned status);
SNT_API const char *snt_status_help(unsigned status);

#ifdef __cplusplus
}
#endif

#endif
