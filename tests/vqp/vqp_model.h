/* SPDX-License-Identifier: MIT */
#ifndef VQP_MODEL_H
#define VQP_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sennit/sennit.h>

#include "lib/devices/scripted.h"
#include "lib/seeds.h"

/*
 * Virtual QPs on a scripted fabric, and what the contract (qp.h) lets them do.
 *
 * Two hosts, each with a context, some devices and one or two virtual CQs, and some
 * links between them: pairs of virtual QPs, of many lanes in either scheme, of one
 * tracked lane or of a pass-through lane, all on the same CQs. A link may also have
 * a peer that keeps to no rule, on a host of its own (vqp_model_raid.c).
 *
 * Every WR has bytes and places of its own, so that memory tells which WRs have
 * taken effect: the peer's bytes for writes, a bit in a word for atomics. Local
 * buffers are spoiled as soon as a WR has retired, so that a lane which still
 * reads them is found out as well.
 *
 * Memory of each end:
 *	WORD    the peer's atomics
 *	SOURCE  what the peer reads; never changes
 *	CANARY  named by WRs that must be refused; never changes
 *	RAID    where a hostile peer writes; never changes on other links
 *	RECV    one place for each data receive
 *	IN      the peer's writes, each to a place of its own
 *	OUT     local buffers of sends, and what READs and atomics bring
 */

#define GRAIN	    64
#define WORD	    0
#define SOURCE	    64
#define SOURCE_SIZE 2048
#define CANARY	    (SOURCE + SOURCE_SIZE)
#define CANARY_SIZE 256
#define RAID	    (CANARY + CANARY_SIZE)
#define RAID_SIZE   1024
#define RECV	    (RAID + RAID_SIZE)
#define RECV_ROOM   320
#define RECV_MAX    16
#define IN	    (RECV + RECV_ROOM * RECV_MAX)
#define IN_SIZE	    8192
#define OUT	    (IN + IN_SIZE)
#define OUT_SIZE    8192
#define MEMORY	    (OUT + OUT_SIZE)

#define HOSTS	      3
#define RAIDER	      2 /* the host of peers that keep to no rule */
#define DEVICES_MAX   3
#define CQS_MAX	      2
#define LINKS_MAX     4
#define LANES_MAX     12
#define SENDS_MAX     96
#define RECVS_MAX     128
#define ATOMICS_MAX   64 /* each has a bit of one word */
#define PIECES_MAX    4
#define MESSAGES_MAX  12
#define MESSAGE_BYTES 256
#define WIDTH_MAX     16

/* In place of a WR's number. */
#define NOBODY -1
#define SHARED -2

#define EMPTY	0xcd
#define SPOILED 0xee
#define GUARD	0xa5
#define TAKEN	0x7a

/* Each link has its own numbers, so that they cannot be mixed up unseen. */
#define SEND_ID	 UINT64_C(0x5e4d00000000)
#define RECV_ID	 UINT64_C(0x4ecf00000000)
#define CLOSE_ID UINT64_C(0xc105ed00)
#define TWIN_ID	 UINT64_C(0x7717) /* of all WRs of a link with twins */
#define LINK_IDS 0x1000

struct send {
	uint8_t opcode;
	uint8_t flags;
	uint8_t pieces;
	uint8_t status;
	bool retired;
	bool failed;
	uint32_t imm;
	uint32_t length;
	uint32_t remote;
	uint32_t piece[PIECES_MAX]; /* offsets into our memory */
	uint32_t piece_length[PIECES_MAX];
	uint64_t bit; /* of atomics */
	uint64_t compare;
	uint32_t posted; /* when, by the world's clock */
	uint32_t reported;
	int over;     /* a later WR to the same place, or -1 */
	int injected; /* the status that a fragment was made to fail with */
	bool taken;   /* failover: the peer was notified, and has reused the memory */
};

struct recv {
	bool data;
	uint8_t pieces;
	uint32_t at;
	uint32_t room;
	bool retired;
	int injected; /* the status that one of its lanes was made to fail with */
};

struct host {
	struct scripted_device *device[DEVICES_MAX];
	unsigned devices;
	struct snt_ctx *ctx;
	struct snt_cq *cq[CQS_MAX];
	unsigned cqs;
	unsigned post_faults[DEVICES_MAX];
	bool polls_itself; /* and never calls a poll of the library */
	bool polls_single; /* one physical CQ at a time, and never all of them */
	unsigned turn;	   /* which of them */
};

/* One virtual QP, or the raider's plain ones: then qp is NULL. */
struct end {
	struct host *host;
	struct snt_cq *cq, *recv_cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	struct snt_qp_opts opts;
	uint16_t weights[LANES_MAX];
	unsigned char *memory;
	unsigned char image[IN_SIZE]; /* what IN is to be in the end */
	struct ibv_qp *lane[LANES_MAX];
	unsigned lane_device[LANES_MAX];
	unsigned lanes;
	unsigned message_max;

	struct send send[SENDS_MAX];
	int8_t out_owner[OUT_SIZE / GRAIN]; /* a WR's number, or NOBODY */
	int8_t in_owner[IN_SIZE / GRAIN];   /* of the peer's WRs, or SHARED */
	int sends, sends_done;		    /* posted; reported or passed over */
	int seen; /* the first whose effect has not been seen */
	int atomics, messages, notifies;
	uint64_t atomic_bits, bits_seen;
	uint32_t out_used, in_used;

	struct recv recv[RECVS_MAX];
	int recvs;
	int class_posted[2], class_done[2]; /* notifications, data */
	int class_order[2][RECVS_MAX];
	int matched[2];	  /* the peer's last WR that we got, by class */
	int twins_failed; /* sends and receives, which look the same */

	bool receipt_due;
	bool closing, closed;
	bool close_failed; /* and can be called again */
};

/* What the raider knows of its own doing. */
struct raid {
	struct ibv_cq *cq;
	uint32_t sequence;
	uint32_t highest;	   /* of the numbers that may be right */
	uint32_t window;	   /* the victim's */
	bool announced[LANES_MAX]; /* a raw immediate is to follow */
	bool numbered[LANES_MAX];  /* and there was a number before */
	uint32_t number[LANES_MAX];
	struct snt_token mailbox; /* the victim's; its length may be 0 */
	bool violated;		  /* the victim has got what no program of ours sends */
};

struct link {
	struct world *world;
	unsigned index;
	struct end end[2];
	enum snt_scheme scheme;
	bool pass;     /* one lane, as verbs have it */
	bool twins;    /* pass: all WRs are signalled and have the same wr_id */
	bool hostile;  /* end 0 is a raider */
	bool floods;   /* little but short notifications, on narrow lanes */
	bool failover; /* lanes that fail are survived */
	bool calm;     /* failover: nothing may be in doubt: no atomics, not strict */
	bool faulty;   /* from now on things may fail */
	unsigned injected, other_faults;
	unsigned recvs_injected; /* receives that were made to fail */
	unsigned recvs_refused;	 /* posts of receives that were */
	/* The only thing that was made to fail: a receive, at this end, with this status.
	 * 0: nothing, or more than that, or what follows from it may be seen first. */
	int only_status;
	unsigned only_end;
	struct raid raid;
};

struct world {
	struct scripted_fabric *fabric;
	struct host host[HOSTS];
	struct link link[LINKS_MAX];
	unsigned links;
	uint64_t random;
	uint64_t library_random;
	uint64_t time; /* the contexts', in ns */
	uint32_t clock;
	bool may_fail; /* this sequence has faults at all */
	bool wraps;    /* counters begin shortly before they wrap */
	uint64_t seed;
	bool trace; /* VQP_MODEL_TRACE is set: says all that happens */
	void (*saw)(const struct snt_wc *wc); /* each completion; or NULL */
};

/* Prints what went wrong; always -1. */
int wrong(const struct link *link, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static inline uint32_t dice(struct world *world, uint32_t bound)
{
	return random_below(&world->random, bound);
}

static inline bool chance(struct world *world, uint32_t percent)
{
	return dice(world, 100) < percent;
}

static inline uint64_t id_of(const struct link *link, uint64_t base, unsigned number)
{
	return base + link->index * LINK_IDS + number;
}

static inline uint8_t pattern(unsigned end, int index, uint32_t at)
{
	return at ? (uint8_t)(index * 131 + at * 7 + (at >> 8) * 13 + end * 57)
		  : (uint8_t)(index + 1);
}

static inline uint8_t source_byte(unsigned end, uint32_t at)
{
	return at * 11 + (at >> 8) * 3 + end * 101;
}

static inline bool is_write(const struct send *send)
{
	return send->opcode == SNT_OP_WRITE || send->opcode == SNT_OP_WRITE_IMM;
}

static inline bool is_message(const struct send *send)
{
	return send->opcode == SNT_OP_SEND || send->opcode == SNT_OP_SEND_IMM;
}

static inline bool is_atomic(const struct send *send)
{
	return send->opcode == SNT_OP_CMP_SWAP || send->opcode == SNT_OP_FETCH_ADD;
}

static inline bool is_ordering(const struct send *send)
{
	return is_message(send) || is_atomic(send) || send->opcode == SNT_OP_WRITE_IMM;
}

/* Notifications are numbered. */
static inline bool is_sequenced(const struct link *link)
{
	return link->scheme == SNT_SCHEME_DQPLB && !link->pass;
}

/* May an end be told lengths, and is it? Each in its own direction. */
static inline bool lacks_length(const struct link *link)
{
	return link->scheme == SNT_SCHEME_SPRAY && !link->pass;
}

static inline bool wants_length(const struct end *end)
{
	return end->opts.flags & SNT_QP_NOTIFY_LENGTH;
}

/* Of a pass-through lane all receives are in one queue, and have room for data. */
static inline bool class_of(const struct link *link, bool data)
{
	return data || link->pass;
}

static inline const char *link_kind(const struct link *link)
{
	if (link->pass)
		return "pass-through";
	return link->scheme == SNT_SCHEME_SPRAY ? "SPRAY" : "DQPLB";
}

/* vqp_model_world.c: making, connecting and unmaking. */
int world_open(struct world *world);
int world_connect(struct world *world);
int world_renew(struct world *world);
int world_close(struct world *world);

/* vqp_model_life.c: what is the same on all devices. An int is 0, or -1 after wrong(). */
void choose_links(struct world *world);
struct snt_cq *choose_cq(struct world *world, const struct host *host);
/* Options of an end, step by step; what a kind of device has of its own comes in between. */
void choose_limits(struct link *link, struct end *end, uint32_t lanes);
uint32_t choose_fragment_size(struct world *world);
void choose_manner(struct link *link, struct end *end, uint32_t by_time_percent);
/* The physical QPs of its lanes, which change with failover; NULL: left out. */
void end_list_lanes(struct end *end);
/* Its host, memory and options are there. */
int end_open(struct link *link, unsigned index);
/* On how long a message may be. */
void link_agree(struct link *link);
/* Some receives before there is a connection, and the cards for it. */
int link_offer(struct link *link, struct snt_card card[2]);
/* A closed link begins again, on the same lanes, and knows nothing of before. */
int link_renew(struct link *link);
/* Receives for all that waits for one at its peer. */
int feed_all(struct world *world);
/* Returns how many completions there were, or -1. */
int poll_hosts(struct world *world);
bool all_closed(const struct world *world);
/* Where closing may fail with the device, it can be repeated. */
int end_close(struct link *link, unsigned end, bool may_fail);
/* What must be possible when everything has been said. */
int end_destroy(struct link *link, struct end *end);
int host_close(struct world *world, struct host *host);
void world_free(struct world *world);

/* vqp_model_wrap.c: counters begin shortly before they wrap. */
void wrap_counters(struct link *link);

/* vqp_model_raid.c: a peer that keeps to no rule. */
int raid_open(struct link *link);
int raid_connect(struct link *link);
void raid(struct link *link);
int raid_poll(struct link *link);
int raid_check(struct link *link);
int raid_close(struct link *link);

/* vqp_model_post.c: random WRs. Each returns 0, or -1 after wrong(). */
int post_sends(struct link *link, unsigned end);
int post_recv(struct link *link, unsigned end, bool data);

/* How many WRs can be in the ring, at least and at most? */
void ring_bounds(const struct end *here, unsigned *least, unsigned *most);

/* Of these, how many may still have to be reported? */
unsigned unreported(const struct end *here, unsigned least);

/* vqp_model_poll.c: in all ways that there are. Returns how many, or -1. */
int poll_host(struct world *world, unsigned host);

/* vqp_model_fault.c: something fails, or is only slow. */
int harm(struct world *world);
void hinder(struct world *world, bool off);

/* vqp_model_check.c: the contract. Each returns 0, or -1 after wrong(). */
/* The CQ that it came from; NULL: it was handed over. */
int check_completion(struct world *world, unsigned host, const struct snt_cq *cq,
		     const struct snt_wc *wc);
int check_effects(struct world *world);
int check_pending(struct link *link, unsigned end);
int check_memory(struct link *link);

/* Whose physical WR is this? Negative: of none that is known. */
int owner_of(const struct link *link, unsigned end, const struct scripted_send *send);

#endif
