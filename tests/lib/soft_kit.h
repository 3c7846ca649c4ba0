/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_SOFT_KIT_H
#define SENNIT_TESTS_SOFT_KIT_H

#include <stdbool.h>
#include "dev/soft/device.h"
#include "dev/soft/wire.h"

/*
 * Two soft devices and the smallest wire there can be between them: packets arrive in
 * the order in which they were sent, at once, unless the test wants otherwise. Time
 * passes only when nothing is on the wire. Whatever fails here fails the test.
 */

#define KIT_BYTES (1u << 20) /* of each end's memory, all of it in its MR */
#define KIT_DEPTH 32
#define KIT_SGES  4
#define KIT_ACCESS                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* The ends: the requester and the responder. */
enum {
	A,
	B,
	ENDS
};

struct kit_end {
	struct snt__soft_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* does not block */
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* only if asked for */
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *bytes;
};

/* A packet on the wire. */
struct kit_frame {
	struct kit_frame *next;
	unsigned to;
	unsigned index; /* among all that were ever sent, from 0 */
	struct snt__soft_path path;
	size_t length;
	uint8_t bytes[];
};

enum kit_fate {
	KIT_PASS,
	KIT_DROP,
	KIT_TWICE,
	KIT_LATE, /* behind the next KIT_LATE_BY packets */
};

#define KIT_LATE_BY 3

/* Zero means the default that is given. */
struct kit_opts {
	struct snt__soft_config config; /* names, GIDs and driver are the kit's */
	struct ibv_qp_cap cap;		/* KIT_DEPTH, KIT_SGES, 64 inline */
	enum ibv_mtu mtu;		/* IBV_MTU_1024 */
	unsigned cqe;			/* 256 */
	unsigned srq_depth;		/* 0: none */
	uint32_t psn;			/* of both directions */
	int access;			/* of the QPs: KIT_ACCESS; -1: none */
	int reads;			/* max_rd_atomic: 4; -1: 0 */
	int dest_reads;			/* max_dest_rd_atomic: 4; -1: 0 */
	int timeout;			/* 14; -1: 0 */
	int retries;			/* 7; -1: 0 */
	int rnr_retries;		/* 7; -1: 0 */
	bool signal_all;
	bool ipv6;
	bool unconnected; /* QPs stay in RESET */
};

struct kit {
	const struct snt_control *control;
	struct kit_opts opts;
	struct kit_end end[ENDS];
	uint64_t now;
	uint64_t random;
	unsigned kicks;
	bool eager; /* packets are on the wire as soon as there is a kick */
	struct kit_frame *first, **last; /* on the wire */
	struct kit_frame *late;		 /* held up, until `late_left` have passed */
	unsigned late_left;
	unsigned frames; /* ever sent */
	unsigned passed; /* delivered */
	/* Decides about each packet; NULL: all pass. */
	enum kit_fate (*fate)(struct kit *kit, const struct kit_frame *frame);
	unsigned chosen; /* for the above */
	/* Sees each packet when it is sent. */
	void (*watch)(struct kit *kit, const struct kit_frame *frame);
	unsigned watched[256];	  /* for the above; by default counts opcodes */
	unsigned long long batch; /* packets asked for at once: 64 */
};

/* With QPs in RTS, connected. NULL: the defaults. */
struct kit *kit_open(const struct kit_opts *opts);
/* Destroys all, which must work; what a test destroyed itself must be NULL. */
void kit_close(struct kit *kit);

/* Objects, one by one. */
void kit_make_qp(struct kit *kit, unsigned end);
int kit_attr(struct kit *kit, unsigned end, enum ibv_qp_state state,
	     struct ibv_qp_attr *attr);
int kit_modify(struct kit *kit, unsigned end, enum ibv_qp_state state);
void kit_connect(struct kit *kit, unsigned end);
enum ibv_qp_state kit_state(struct kit *kit, unsigned end);

/* Moves packets until there are none; time stands still. */
void kit_pump(struct kit *kit);
/* Delivers what both ends have to send now, before they have a chance to answer. */
void kit_exchange(struct kit *kit);
/* Moves packets and time until nothing is left to wait for. */
void kit_run(struct kit *kit);
/* The same for so many ns. */
void kit_run_for(struct kit *kit, uint64_t ns);
/* Takes what an end wants to send, and throws it away. */
unsigned kit_swallow(struct kit *kit, unsigned end);
/* Moves time until the timeout that verbs have set is over, and throws away the probes
 * that an end sends until then. */
void kit_time_out(struct kit *kit, unsigned end);
/* Gives a packet to an end, as if from its peer. */
void kit_inject(struct kit *kit, unsigned to, const struct snt__wire_packet *packet,
		const void *payload);

/* Work. Ids are what the test says; sends are from the end's own memory at `at`, to the
 * peer's memory at `far`. */
struct kit_send {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	uint32_t at, length, far;
	unsigned flags; /* of verbs, beside IBV_SEND_SIGNALED */
	bool silent;	/* unsignalled */
	uint32_t imm;
	uint64_t compare_add, swap;
};

struct ibv_send_wr kit_wr(struct kit *kit, unsigned end, const struct kit_send *send,
			  struct ibv_sge *sge);
void kit_send(struct kit *kit, unsigned end, const struct kit_send *send);
int kit_try_send(struct kit *kit, unsigned end, const struct kit_send *send);
void kit_recv(struct kit *kit, unsigned end, uint64_t id, uint32_t at, uint32_t length);
int kit_try_recv(struct kit *kit, unsigned end, uint64_t id, uint32_t at,
		 uint32_t length);

/* The next completion of an end, which must be of that id and status. */
struct ibv_wc kit_expect(struct kit *kit, unsigned end, uint64_t id,
			 enum ibv_wc_status status);
void kit_expect_none(struct kit *kit, unsigned end);
/* The next async event. */
void kit_expect_event(struct kit *kit, unsigned end, enum ibv_event_type type);
void kit_expect_no_event(struct kit *kit, unsigned end);

/* Memory with a pattern that says where each byte came from. */
void kit_fill(struct kit *kit, unsigned end, uint32_t at, uint32_t length,
	      unsigned seed);
void kit_check(struct kit *kit, unsigned end, uint32_t at, uint32_t length,
	       unsigned seed);
void kit_check_zero(struct kit *kit, unsigned end, uint32_t at, uint32_t length);

const struct snt__soft_stats *kit_stats(struct kit *kit, unsigned end);

#endif
