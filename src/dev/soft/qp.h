/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_QP_H
#define SNT_DEV_SOFT_QP_H

#include "dev/soft/core.h"
#include "dev/soft/recv.h"
#include "dev/soft/round_trip.h"

/*
 * Queue pairs.
 *
 * Requester --------- Every packet of every request has a number, assigned when the WR
 * is posted; its lower 24 bits are the PSN. A READ has as many numbers as responses.
 * Numbers do not wrap, so that they can be compared, however many messages of 2 GiB are
 * queued. The PSN in a response is extended to a number by its distance to `una`.
 *
 *	una   the oldest number without an answer: all before are acknowledged and, for
 *	      READs and atomics, their data has arrived
 *	next  the next number to send
 *	sent  the highest number ever sent, plus 1
 *	end   the first number of the next WR to be posted
 *
 *	una <= next <= sent <= end, and all WRs before una have retired:
 *	slot(head).first <= una < slot(head).end, unless the queue is empty;
 *	slot(at).first <= next < slot(at).end, unless all is sent, at == tail.
 *
 * Numbers in [una, next) are in flight, numbers in [next, sent) were, before the last
 * rewind. A rewind always sets next back to una: go-back-N. It happens once per loss,
 * because late answers to what was sent before it report the same loss again: `rewound`
 * is where the last one was. At the same place only a timeout rewinds again, or a NAK that
 * comes so late that it can be about what was sent again.
 *
 * READs are requested in chunks that begin at multiples of `chunk` from the first
 * packet of their WR, so that a READ which is repeated from its middle still lies
 * within one that the responder remembers. `reads` chunks and atomics are in flight,
 * `reads_packets` responses of them are missing; all of them are in [una, next).
 *
 * The timer runs while something is in flight, or while the peer wants time for a
 * receive to be posted (`rnr_wait`), in which case nothing is sent. It has two purposes.
 * At `expires`, which is what verbs' timeout says, a retry has failed; only that, and the
 * first NAK at each place, uses up retries. Long before, when the peer has been silent for
 * longer than it usually takes (round_trip.h), probes are sent (probe.c), and again after
 * twice the time. These are free: a QP fails when it would have failed without them.
 *
 * A WR that cannot be executed, for its keys or its length, has a `status`. Nothing
 * after it is sent, and it fails when it has become the oldest.
 *
 * A local WR, which binds or invalidates a window, has no packets: first == end. It is
 * executed once, when it is next to be sent, and retires when all before it have. So the
 * oldest WR is one that has packets, or one that was not executed.
 *
 * Responder ---------
 *	expected  the number of the next request; its lower 24 bits are the PSN, and
 *	          it does not wrap either
 *	message   begun by a FIRST, not yet ended by a LAST; a SEND goes to the receive
 *	          in `recv`, a WRITE to addr, rkey and left
 *
 * READs and atomics are remembered in a ring, `memos`, of max_dest_rd_atomic entries,
 * to answer them again: a READ by reading again, an atomic with its first result.
 * Answers are sent in the order of the requests: first the memos that wait in `queue`,
 * each at most once, then `answer`, which is an ACK of everything, or a NAK. Thus an
 * ACK never overtakes the answer of a request that it covers.
 *
 * After a request out of order there is one NAK, and silence until the expected one
 * comes (`nak_sent`), or until the peer begins again without it, which is answered by
 * another NAK.
 *
 * In ERR nothing more is executed, but pending answers and a NAK are still sent: a peer
 * must not be left in doubt about a request whose completion was reported here.
 */

enum snt__soft_send_flag {
	SNT__SOFT_SIGNALED = 1 << 0,
	SNT__SOFT_FENCED = 1 << 1,
	SNT__SOFT_WANTS_EVENT = 1 << 2, /* the solicited bit */
	SNT__SOFT_INLINE = 1 << 3,
	SNT__SOFT_WITH_IMM = 1 << 4,
	SNT__SOFT_WITH_INV = 1 << 5, /* the key is in `immediate` */
	SNT__SOFT_EXECUTED = 1 << 6, /* a local WR */
};

/* The kinds of local WRs, besides those of enum snt__wire_kind. */
enum snt__soft_local_kind {
	SNT__SOFT_KIND_BIND = 0x80,
	SNT__SOFT_KIND_INVALIDATE,
};

/* A posted WR: one cache line. */
struct snt__soft_send {
	uint64_t first;
	uint64_t end;
	uint64_t wr_id;
	uint64_t remote_addr;
	union {
		struct {
			uint64_t swap_add;
			uint64_t compare;
		} atomic;
		struct {
			uint32_t qpn;
			uint32_t qkey;
		} datagram;
		struct {
			uint64_t length;
			uint32_t lkey; /* of the MR */
			uint32_t access;
		} bind;
	};
	uint32_t length;
	uint32_t rkey;
	uint32_t immediate;
	uint8_t kind; /* enum snt__wire_kind, snt__soft_local_kind */
	uint8_t flags;
	uint8_t sge_count;
	uint8_t status; /* enum ibv_wc_status */
};

static inline bool snt__soft_send_reads(const struct snt__soft_send *send)
{
	return send->kind >= SNT__WIRE_KIND_READ &&
	       send->kind <= SNT__WIRE_KIND_FETCH_ADD;
}

static inline bool snt__soft_send_local(const struct snt__soft_send *send)
{
	return send->kind >= SNT__SOFT_KIND_BIND;
}

/* What is to be sent next: see probe.c. */
enum snt__soft_probe {
	SNT__SOFT_PROBE_NONE,
	SNT__SOFT_PROBE_FIRST,
	SNT__SOFT_PROBE_LAST,
};

struct snt__soft_requester {
	uint64_t una;
	uint64_t next;
	uint64_t sent;
	uint64_t end;
	uint32_t head;
	uint32_t tail;
	uint32_t at;
	uint32_t mask;
	struct snt__soft_send *slots;
	uint8_t *payloads;		 /* payload_size for each slot */
	struct snt__soft_path *paths;	 /* one for each slot; UD only */
	struct snt__soft_cursor cursor;	 /* the place of `next` */
	struct snt__soft_cursor landing; /* the place of the oldest READ's next data */
	uint32_t depth;
	uint32_t sge_max;
	uint32_t payload_size; /* room for sge_max SGEs, or as many inline bytes */
	bool far;	       /* a long path, see set_window() */
	uint32_t window;       /* packets in flight, other than responses */
	uint32_t run;	       /* packets that are best sent together; 1: any number */
	uint32_t chunk;	       /* packets; a power of two */
	uint32_t reads_packets;
	uint16_t reads;
	uint16_t reads_max;
	uint32_t ack_mask; /* numbers with these bits set ask for an ACK */
	uint8_t retry_left;
	uint8_t rnr_left;
	uint8_t backoff;
	bool rnr_wait;
	bool rewound_once;
	bool drained; /* its event was raised, in SQD */
	uint64_t rewound;
	uint64_t rewound_at;
	uint64_t timeout; /* ns; 0: never */
	uint64_t expires; /* when the timeout is over; SNT__SOFT_NEVER: not running */
	uint64_t asked;	  /* the last number sent that asks for an answer */
	struct snt__soft_round_trip trip;
	uint8_t probe;	/* enum snt__soft_probe */
	bool probed;	/* since una last advanced */
	uint8_t probes; /* how often the time between them was doubled */
};

enum snt__soft_memo_state {
	SNT__SOFT_MEMO_FREE,
	SNT__SOFT_MEMO_NEW,
	SNT__SOFT_MEMO_ANSWERED, /* once, at least */
};

/* An accepted READ or atomic. While it is queued, responses [at, stop) are to be sent,
 * beginning with `start`; responses are counted from 0. */
struct snt__soft_memo {
	uint8_t state;
	bool queued;
	uint8_t kind;
	uint64_t first; /* the number of response 0 */
	uint32_t msn;
	uint32_t rkey;
	uint64_t addr;
	uint64_t original; /* of an atomic */
	uint32_t length;
	uint32_t count;
	uint32_t start;
	uint32_t at;
	uint32_t stop;
};

/* The kind of the current `message`. */
enum snt__soft_message {
	SNT__SOFT_MESSAGE_NONE,
	SNT__SOFT_MESSAGE_SEND,
	SNT__SOFT_MESSAGE_WRITE,
};

struct snt__soft_responder {
	uint64_t expected;
	uint32_t msn;
	uint8_t message;
	bool nak_sent;
	uint64_t early;	 /* the first number since then, or before */
	uint64_t latest; /* the last one */
	bool answer;	 /* to be sent: */
	uint8_t answer_syndrome;
	uint64_t answer_number;
	/* The current message. */
	uint32_t rkey;
	uint64_t addr;
	uint32_t left; /* of a WRITE */
	uint32_t got;  /* of either */
	struct snt__soft_recv recv;
	struct snt__soft_recv_queue *queue;
	/* READs and atomics. */
	struct snt__soft_memo *memos;
	uint8_t *waiting; /* a queue of memo indices, the first in place 0 */
	unsigned waiting_count;
	unsigned memo_count; /* max_dest_rd_atomic */
	unsigned memo_next;  /* the oldest, which is the next to be used */
};

/* Counters of a QP since it was last connected, as snt__soft_stats has them. */
struct snt__soft_qp_stats {
	uint64_t resent; /* with probes */
	uint64_t timeouts;
	uint64_t probes;
	uint64_t duplicates;
	uint64_t out_of_order;
};

struct snt__soft_qp {
	/* As in libibverbs, so that ibv_qp_to_qp_ex() sees that it is not an extended
	 * QP. */
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ibv_ex;
	};
	uint32_t comp_mask;
	void *xrcd;

	struct snt__soft_device *device;
	struct snt__link active;
	uint32_t mtu;
	uint32_t burst; /* packets that may go as one; 1 on a wire */
	uint32_t peer_qpn;
	struct snt__soft_path path;
	uint32_t access;
	uint32_t qkey;
	bool signal_all;
	bool established;
	bool requests_first; /* its next turn begins with requests, not answers */
	uint16_t source_port;
	uint32_t windows; /* bound to it */
	struct snt__soft_qp_stats stats;
	struct snt__soft_requester requester;
	struct snt__soft_responder responder;
	struct snt__soft_timer timer;

	/* Used by verbs. */
	struct snt__soft_recv_queue recv_queue;
	struct snt__soft_object object;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t index; /* in the device's table */
};

static inline struct snt__soft_qp *snt__soft_qp(struct ibv_qp *qp)
{
	return snt__container(qp, struct snt__soft_qp, ibv);
}

static inline struct snt__soft_send *snt__soft_send_at(
	const struct snt__soft_requester *requester, uint32_t position)
{
	return &requester->slots[position & requester->mask];
}

/* The inline data of a WR with SNT__SOFT_INLINE; the SGEs of any other. */
static inline uint8_t *snt__soft_send_inline(
	const struct snt__soft_requester *requester, uint32_t position)
{
	return &requester->payloads[(size_t)(position & requester->mask) *
				    requester->payload_size];
}

static inline struct ibv_sge *snt__soft_send_sges(
	const struct snt__soft_requester *requester, uint32_t position)
{
	return (struct ibv_sge *)(void *)snt__soft_send_inline(requester, position);
}

/* There is, or may be, something to send. */
static inline void snt__soft_qp_activate(struct snt__soft_qp *qp)
{
	if (!snt__linked(&qp->active))
		snt__list_append(&qp->device->active, &qp->active);
}

/* The number of packets of a message; an empty one has one, too. An MTU is a power of
 * two. */
static inline uint32_t snt__soft_packets(uint32_t length, uint32_t mtu)
{
	return length ? (uint32_t)(((uint64_t)length + mtu - 1) >> __builtin_ctz(mtu))
		      : 1;
}

/* A packet to the peer: begin, set the headers that its opcode has, and only those,
 * then turn it into what a driver sends. */
static inline void snt__soft_packet_begin(const struct snt__soft_qp *qp, uint8_t opcode,
					  uint64_t number,
					  struct snt__wire_packet *packet)
{
	packet->opcode = opcode;
	packet->flags = SNT__WIRE_MIGRATED;
	packet->pkey = SNT__WIRE_PKEY_DEFAULT;
	packet->qpn = qp->peer_qpn;
	packet->psn = number & SNT__PSN_MASK;
	packet->payload_length = 0;
}

static inline void snt__soft_packet_end(const struct snt__soft_path *path,
					const struct snt__wire_packet *packet,
					struct snt__soft_packet *out)
{
	out->path = path;
	out->header_length = snt__wire_encode(packet, out->header);
	out->payload_length = packet->payload_length;
}

/* qp.c */
int snt__soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			struct ibv_qp **qp_out);
int snt__soft_destroy_qp(struct ibv_qp *qp);

static inline struct snt__soft_qp *snt__soft_qp_find(struct snt__soft_device *device,
						     uint32_t qpn)
{
	struct snt__soft_qp *qp = device->qps[qpn & device->qp_mask];

	return qp && qp->ibv.qp_num == qpn ? qp : NULL;
}

/* state.c */
int snt__soft_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int snt__soft_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr_out, int mask,
		       struct ibv_qp_init_attr *init_attr_out);

/* The round trip has been measured again. */
void snt__soft_adapt_window(struct snt__soft_qp *qp);

/* flush.c */
/* The oldest WR has succeeded. */
void snt__soft_send_retire(struct snt__soft_qp *qp);
/* Local WRs that have been executed succeed, as long as they are the oldest. */
void snt__soft_send_retire_local(struct snt__soft_qp *qp);
/* The oldest WR has failed, and so has the QP. */
void snt__soft_send_fail(struct snt__soft_qp *qp, enum ibv_wc_status status);
/* The receive that the QP works on is done. */
void snt__soft_recv_retire(struct snt__soft_qp *qp, const struct ibv_wc *wc,
			   bool solicited);
void snt__soft_recv_fail(struct snt__soft_qp *qp, enum ibv_wc_status status);
/* To ERR; every WR is flushed. */
void snt__soft_qp_error(struct snt__soft_qp *qp);
/* Flushes the queues of a QP that is in ERR. */
void snt__soft_flush(struct snt__soft_qp *qp);
/* Drops everything that is in flight, in both directions. */
void snt__soft_qp_quiesce(struct snt__soft_qp *qp);

/* post.c */
int snt__soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad_wr);
int snt__soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);

/* requester.c, respond.c, datagram.c: fill in packets and return how many; fewer than
 * asked for only if there are no more for now, or if an acknowledgment is held back. */
unsigned snt__soft_request_output(struct snt__soft_qp *qp,
				  struct snt__soft_packet *packets, unsigned max,
				  uint64_t now);
unsigned snt__soft_respond_output(struct snt__soft_qp *qp,
				  struct snt__soft_packet *packets, unsigned max,
				  bool hold);
unsigned snt__soft_datagram_output(struct snt__soft_qp *qp,
				   struct snt__soft_packet *packets, unsigned max);

/* request.c: packets of the WR at a position. */
/* Numbers [number, next) of a SEND or a WRITE. False: a key is no longer valid. */
bool snt__soft_request_data(struct snt__soft_qp *qp, uint32_t position, uint64_t number,
			    uint64_t next, bool ask, struct snt__soft_cursor *cursor,
			    struct snt__soft_packet *out);
void snt__soft_request_read(struct snt__soft_qp *qp, uint32_t position, uint64_t number,
			    uint64_t stop, struct snt__soft_packet *out);
void snt__soft_request_atomic(struct snt__soft_qp *qp, uint32_t position,
			      struct snt__soft_packet *out);

/* Where the chunk of a READ that holds this number ends. */
static inline uint64_t snt__soft_read_stop(const struct snt__soft_requester *requester,
					   const struct snt__soft_send *send,
					   uint64_t number)
{
	uint64_t done = number - send->first;
	uint64_t stop = send->first + (done & ~(uint64_t)(requester->chunk - 1)) +
			requester->chunk;

	return stop < send->end ? stop : send->end;
}

/* probe.c: the next packet of a probe. Returns how many: 1 or 0. */
unsigned snt__soft_probe_output(struct snt__soft_qp *qp, struct snt__soft_packet *out);

/* completer.c, responder.c, datagram.c: a packet for a QP that may receive it. */
void snt__soft_complete_input(struct snt__soft_qp *qp,
			      const struct snt__wire_packet *packet, uint64_t now);
void snt__soft_respond_input(struct snt__soft_qp *qp,
			     const struct snt__wire_packet *packet);
void snt__soft_datagram_input(struct snt__soft_qp *qp,
			      const struct snt__soft_path *path,
			      const struct snt__wire_packet *packet);

/* recovery.c */
/* `una` has advanced. */
void snt__soft_progress(struct snt__soft_qp *qp, uint64_t now);
/* A packet was lost, as a missing response shows, or, if `told`, a NAK. */
void snt__soft_lost(struct snt__soft_qp *qp, bool told, uint64_t now);
/* The peer has no receive for packet una. */
void snt__soft_not_ready(struct snt__soft_qp *qp, unsigned code, uint64_t now);
void snt__soft_timeout(struct snt__soft_qp *qp, uint64_t now);
/* Sets `next` back to `una`: nothing is in flight any more. */
void snt__soft_rewind(struct snt__soft_qp *qp);
/* Something was sent: the timer runs, if anything is in flight. */
void snt__soft_timer_start(struct snt__soft_qp *qp, uint64_t now);
void snt__soft_timer_halt(struct snt__soft_qp *qp);

/* execute.c */
/* The result of a request. */
enum snt__soft_verdict {
	SNT__SOFT_DONE,
	SNT__SOFT_RNR,
	SNT__SOFT_INVALID, /* NAKs, by their syndrome */
	SNT__SOFT_DENIED,
	SNT__SOFT_BROKEN, /* a receive that cannot be used */
	SNT__SOFT_LOST,	  /* no answer: its payload was gone */
};

enum snt__soft_verdict snt__soft_execute(struct snt__soft_qp *qp,
					 const struct snt__wire_packet *packet);

/* respond.c */
/* Queues a memo, or part of it, to be answered. */
void snt__soft_memo_answer(struct snt__soft_responder *responder, unsigned index,
			   uint32_t start, uint32_t stop);
/* Room for a new READ or atomic, or NULL if there are too many. */
struct snt__soft_memo *snt__soft_memo_new(struct snt__soft_responder *responder);
/* Queues an ACK up to that number, or a NAK at it. */
void snt__soft_answer(struct snt__soft_qp *qp, uint8_t syndrome, uint64_t number);

#endif
