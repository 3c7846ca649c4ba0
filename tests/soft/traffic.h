/* SPDX-License-Identifier: MIT */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <infiniband/verbs.h>

#include "lib/sim/device.h"
#include "lib/search.h"

/*
 * Random traffic between plain QPs of soft devices, and what verbs let them do.
 *
 * Every WR has bytes and places of its own, so that memory tells which of them have
 * taken effect. Local buffers are spoiled as soon as their WR is reported: what is
 * sent from them later, or written to them later, is found out.
 *
 * Memory is at the same address in every run, since addresses are part of packets.
 */

#define HOSTS_MAX	3
#define DEVICES_MAX	4
#define CQS_MAX		2
#define PAIRS_MAX	4
#define SENDS_MAX	48 /* of one QP */
#define RECVS_MAX	64
#define SRQ_RECVS_MAX	192
#define PIECES_MAX	4
#define OPS_MAX		160 /* of all QPs */
#define SHARED_ADDS_MAX OPS_MAX

/* Memory of an end of a pair. */
#define WORD	    0  /* for the peer's atomics */
#define SOURCE	    64 /* what the peer reads; never changes */
#define SOURCE_SIZE 8192
#define CANARY	    (SOURCE + SOURCE_SIZE) /* never changes */
#define CANARY_SIZE 256
#define IN	    (CANARY + CANARY_SIZE) /* the peer's WRITEs */
#define IN_SIZE	    (40 << 10)
#define OUT	    (IN + IN_SIZE) /* local buffers */
#define OUT_SIZE    (56 << 10)
#define RECV	    (OUT + OUT_SIZE)
#define RECV_ROOM   1536
#define EDGE	    (RECV + RECV_ROOM * RECVS_MAX) /* never changes */
#define EDGE_SIZE   SOURCE_SIZE			   /* the longest that goes beyond it */
#define MEMORY	    (EDGE + EDGE_SIZE)

/* Memory of a device: a word for everybody's atomics, receives of its SRQ. */
#define SRQ_RECV      64
#define DEVICE_MEMORY (SRQ_RECV + RECV_ROOM * SRQ_RECVS_MAX)

#define EMPTY	0xcd
#define SPOILED 0xee
#define GUARD	0xa5

enum fault {
	LOSS,
	DUPLICATE,
	CORRUPT,
	REORDER,
	JITTER,
	MIX,	   /* packets of different QPs overtake one another */
	BANDWIDTH, /* slow links with short queues */
	CUT,	   /* and restored, in silence */
	PORT,	   /* the same with an event */
	DEVICE,	   /* dies */
	HOST,	   /* dies */
	ERROR,	   /* a QP is put into ERR */
	BAD,	   /* requests that the peer must refuse */
	RNR,	   /* receives are late */
	GIVE_UP,   /* few retries */
	RESET,	   /* all QPs are put into RESET in the middle of everything */
	DEREG,	   /* memory is registered anew while copies are on their way */
	PAUSE,	   /* QPs are put into SQD and back */
	WINDOW,	   /* memory windows come and go */
	FAULTS
};

/* What is wrong with a request. */
enum bad {
	GOOD,
	BAD_KEY,
	BAD_RANGE,
	BAD_ACCESS,
	BAD_LENGTH, /* more than the receive has room for */
	BAD_ALIGNMENT,
};

/* An end's window, all of its memory up to EDGE, for the other end. It changes only while no
 * WR with its key is under way. */
enum window {
	UNBOUND,
	BINDING,
	BOUND,
	LEAVING, /* an invalidation is under way, or has failed */
};

struct send {
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;
	uint8_t bad; /* enum bad */
	uint8_t pieces;
	bool signalled;
	bool done, failed;
	bool read_back; /* a later READ relies on it */
	bool consumed;	/* the peer has used what was written, and its place again */
	bool shared;	/* an atomic on the device's word */
	bool by_window; /* its key is that of the peer's window */
	int16_t over;	/* a later WRITE to the same place, or -1 */
	int16_t source; /* the WRITE whose bytes a READ wants, or -1 */
	uint32_t imm;
	uint32_t length;
	uint32_t remote; /* offset in the peer's memory */
	uint32_t piece[PIECES_MAX];
	uint32_t piece_length[PIECES_MAX];
	uint64_t before, after; /* the word, of atomics */
};

struct recv {
	unsigned char *bytes;
	uint32_t room;
	bool done;
};

struct end {
	struct device *device;
	struct end *peer;
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_mr *mr, *closed_mr; /* all of it; all of it, for us alone */
	struct ibv_mw *mw;	       /* bound to the latter */
	enum window window;
	unsigned char *memory;
	unsigned pair, side;
	uint32_t mtu;
	struct ibv_qp_cap cap;
	bool sig_all, srq;
	uint8_t timeout, retry_cnt, rnr_retry, rnr_timer;
	uint8_t reads, reads_answered;

	struct send send[SENDS_MAX];
	int sends, sends_done; /* posted; reported or passed over */
	int unsignalled;       /* in a row */
	bool failed;	       /* a WR has; those after it are flushed */
	bool in_error;	       /* by us, or because its device is dead */
	bool sent_bad;
	int seen;		    /* WRs before this one have taken effect */
	int consumer[SENDS_MAX];    /* WRs that take a receive, in order */
	int consumers, arrived;	    /* sent; the peer has had them */
	int round;		    /* the first WR since it was connected */
	uint64_t word, word_before; /* the peer's: after all posted; before the round */
	uint32_t out_used, in_used;

	struct recv recv[RECVS_MAX];
	int recvs, recvs_done;
	bool recv_failed; /* it was flushed, and so would be all others */
};

struct device {
	struct snt__sim_device *sim;
	const struct snt_control *control;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[CQS_MAX];
	bool asleep[CQS_MAX]; /* not polled before there is an event */
	bool dozes[CQS_MAX];  /* asleep, and waked by what is solicited only */
	unsigned cqs;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	unsigned char *memory;
	uint32_t lost; /* of a million packets, there and back; with corrupt ones */
	struct recv recv[SRQ_RECVS_MAX];
	int recvs, recvs_done;
	int adds, adds_done;		 /* to the shared word */
	bool found[SHARED_ADDS_MAX + 1]; /* values that FETCH_ADDs have found */
	bool killed;
};

struct world {
	const struct search_plan *plan;
	struct snt__sim *sim;
	struct snt__sim_host *host[HOSTS_MAX];
	unsigned hosts;
	struct device device[DEVICES_MAX];
	unsigned devices;
	struct end end[PAIRS_MAX][2];
	unsigned pairs;
	uint64_t random;
	uint32_t faults; /* kinds that this seed has */
	uint32_t ops;	 /* posted */
	bool harmed;	 /* some are cut off, for some time or for ever */
};

static inline uint32_t dice(struct world *world, uint32_t bound)
{
	return random_below(&world->random, bound);
}

static inline bool chance(struct world *world, uint32_t percent)
{
	return dice(world, 100) < percent;
}

static inline uint32_t between(struct world *world, uint32_t least, uint32_t most)
{
	return least + dice(world, most - least + 1);
}

static inline bool has(const struct world *world, enum fault fault)
{
	return world->faults >> fault & 1;
}

static inline bool is_dead(const struct end *end)
{
	return end->device->sim->host->dead;
}

static inline bool is_write(const struct send *send)
{
	return send->opcode == IBV_WR_RDMA_WRITE ||
	       send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool is_message(const struct send *send)
{
	return send->opcode == IBV_WR_SEND || send->opcode == IBV_WR_SEND_WITH_IMM ||
	       send->opcode == IBV_WR_SEND_WITH_INV;
}

/* No packets. */
static inline bool is_local(const struct send *send)
{
	return send->opcode == IBV_WR_BIND_MW || send->opcode == IBV_WR_LOCAL_INV;
}

static inline bool is_atomic(const struct send *send)
{
	return send->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static inline bool takes_receive(const struct send *send)
{
	return is_message(send) || send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline uint8_t pattern(const struct end *end, int index, uint32_t at)
{
	return (uint8_t)(index * 131 + at * 7 + (at >> 8) * 13 + end->side * 57 +
			 end->pair * 29 + 1);
}

static inline uint8_t source_byte(const struct end *end, uint32_t at)
{
	return at * 11 + (at >> 8) * 3 + end->side * 101 + end->pair * 17;
}

/* What an end's SOURCE holds. */
const unsigned char *source_image(const struct end *end);

/* Which WR a completion is about. */
#define ID_RECV UINT64_C(0x4ecf000000000000)
#define ID_SEND UINT64_C(0x5e4d000000000000)

#define wrong(world, format, ...)                             \
	search_wrong("seed %llu at %llu ns: " format,         \
		     (unsigned long long)(world)->plan->seed, \
		     (unsigned long long)snt__sim_now((world)->sim), ##__VA_ARGS__)

#define trace(world, format, ...)                                              \
	do {                                                                   \
		if ((world)->plan->verbose)                                    \
			printf("# %9llu " format "\n",                         \
			       (unsigned long long)snt__sim_now((world)->sim), \
			       ##__VA_ARGS__);                                 \
	} while (0)

/*
 * Each returns 0, or -1 after wrong().
 */

/* traffic_world.c */
int world_open(struct world *world, const struct search_plan *plan);
int world_connect(struct world *world, struct end *end);
int world_set_state(struct world *world, struct end *end, enum ibv_qp_state state);
int world_register_anew(struct world *world, struct end *end);
enum ibv_qp_state world_state(const struct end *end);
int world_close(struct world *world);

/* traffic_post.c */
int post_sends(struct world *world, struct end *end);
/* A signalled WR, so that all before it are accounted for. */
int post_marker(struct world *world, struct end *end);
int post_recv(struct world *world, struct end *end);
/* As many as the peer's WRs need, or as there is room for. */
int post_recvs(struct world *world, struct end *end);

/* traffic_check.c */
/* What was posted and not reported never will be. */
void abandon(struct end *end);
int check_completion(struct world *world, struct device *device,
		     const struct ibv_wc *wc);
/* Does the next completion, which is this one, wake those who wait for solicited ones? */
bool is_loud(struct world *world, const struct device *device, const struct ibv_wc *wc);
/* All of this end's WRs are done: are they, and is memory what it must be? */
int check_end(struct world *world, struct end *end);
int check_device(struct world *world, struct device *device);

#endif
